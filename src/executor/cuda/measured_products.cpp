#include "executor/cuda/measured_products.h"

#include <cstdlib>

#include "base/error.h"
#include "io/files.h"
#include "io/posix_file_system.h"
#include "kernels/cuda/lt_gemm.h"

namespace plimsoll::executor {

namespace {

constexpr std::int64_t kMostBytes = 4 << 20;

std::string cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') return std::string(cache) + "/plimsoll";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') return std::string(home) + "/.cache/plimsoll";
  return {};
}

}  // namespace

MeasuredProducts::MeasuredProducts() {
  const std::string folder = cache_folder();
  if (folder.empty()) return;
  path_ = folder + "/products.txt";
  try {
    io::PosixFileSystem files;
    if (files.status(path_)) before_ = io::read_text(files, path_, kMostBytes);
  } catch (const base::Error&) {
    before_.clear();
  }
  kernels::cuda::remember_products(before_);
}

void MeasuredProducts::keep() const {
  const std::string now = kernels::cuda::measured_products();
  if (path_.empty() || now == before_ || std::ssize(now) > kMostBytes) return;
  try {
    io::PosixFileSystem files;
    io::make_directories(files, path_.substr(0, path_.rfind('/')));
    io::replace_file(files, path_, io::as_bytes(now));
  } catch (const base::Error&) {
    return;  // measured again next time
  }
}

}  // namespace plimsoll::executor
