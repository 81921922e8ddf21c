# How the CUDA backend is compiled. Only with PLIMSOLL_CUDA: nothing else needs a toolkit.
set(PLIMSOLL_CUDA_ARCHITECTURES "80-real;90a-real" CACHE STRING "GPUs to build kernels for")
if(NOT PLIMSOLL_CUDA)
  return()
endif()
if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
  set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
endif()
if(PLIMSOLL_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${PLIMSOLL_CCACHE})
endif()
set(CMAKE_CUDA_ARCHITECTURES ${PLIMSOLL_CUDA_ARCHITECTURES})
enable_language(CUDA)
# CMake 3.25 does not know that nvcc has C++20 since its version 12.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
# CMake writes -isystem=PATH, which ccache does not make relative: every new clone would compile all kernels again.
set(CMAKE_INCLUDE_SYSTEM_FLAG_CUDA "-isystem ")
# Packages name it, and as an -isystem it would hide the C library's headers from the C++ library's.
list(APPEND CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES /usr/include)
find_package(CUDAToolkit REQUIRED)

# Rounding stays IEEE's: no fast math. fmt takes nvcc for a compiler without constexpr unless told.
add_library(plimsoll_cuda_flags INTERFACE)
target_compile_options(plimsoll_cuda_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-DFMT_USE_CONSTEXPR=1 --expt-relaxed-constexpr -lineinfo -Xcompiler=-fvisibility=hidden>)
if(PLIMSOLL_WERROR)
  target_compile_options(plimsoll_cuda_flags INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
