// cuDNN's frontend looks its functions up in this handle. It is opened with the module, so that a machine without cuDNN has
// everything else; what is missing is said by the attention kernels when they refuse.
#include <dlfcn.h>

namespace cudnn_frontend {

void* cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);

}  // namespace cudnn_frontend
