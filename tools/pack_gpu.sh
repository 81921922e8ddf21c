#!/usr/bin/env bash
# What the GPU tests need on a machine where nothing can be installed.
#
#   tools/pack_gpu.sh libraries [FILE]       # here: the libraries that Plimsoll is built with, as dpkg has them (build/gpu_libraries.tar.gz);
#                                            # there, in a throw-away Debian: tar -C / -xzf FILE, and it can be built
#   tools/pack_gpu.sh programs [FILE]        # builds programs and modules with CUDA, and packs them without symbols, with the libraries that a
#                                            # machine with CUDA's own lacks (build/gpu_pack.tar.gz); needs no GPU
#   source tools/pack_gpu.sh unpack [FILE [FOLDER]]    # there: unpacks programs into FOLDER (/tmp/gpu_pack) and sets LD_LIBRARY_PATH
#
# CUDA's own libraries and NCCL are taken from where they are there.
root_of_pack=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

pack_libraries() {
  set -euo pipefail
  local file=${1:-$root_of_pack/build/gpu_libraries.tar.gz}
  mkdir -p "$(dirname "$file")"
  local packages=(libfmt-dev libfmt9 libcli11-dev libhwy-dev libhwy1 libhwloc-dev libhwloc15 liburing-dev liburing2 libpcre2-dev libpcre2-8-0
    libpcre2-16-0 libpcre2-32-0 libpcre2-posix3 libutf8proc-dev libutf8proc2 libxxhash-dev libxxhash0 pkgconf pkgconf-bin libpkgconf3 pkg-config
    librapidcheck-dev libgtest-dev libgmock-dev googletest libnuma1 libnuma-dev)
  local package path
  for package in "${packages[@]}"; do
    dpkg -L "$package" 2>/dev/null | grep -v '^/usr/share/\(doc\|man\|locale\)' || true
  done | while read -r path; do if [[ -f $path || -L $path ]]; then echo "${path#/}"; fi; done | sort -u |
    tar -C / -czf "$file" --no-recursion -T -
  printf '%s: %d bytes\n' "$file" "$(stat -c %s "$file")"
}

pack_programs() {
  set -euo pipefail
  local file folder found one
  file=$(realpath -m "${1:-$root_of_pack/build/gpu_pack.tar.gz}")
  cd "$root_of_pack"
  mkdir -p build
  cmake --preset cuda -DPLIMSOLL_CUDA_ARCHITECTURES="${PLIMSOLL_CUDA_ARCHITECTURES:-90a-real}" -DPLIMSOLL_BENCH=OFF >build/configure-cuda.log 2>&1 ||
    { tail -n 30 build/configure-cuda.log && return 1; }
  local targets=(plimsoll plimsoll_cuda plimsoll_nccl test_collectives_nccl
    test_cuda_operators test_cuda_exchange test_cuda_layouts test_golden test_golden_curve)
  cmake --build --preset cuda -j "$(nproc)" --target "${targets[@]}" >build/build-cuda.log 2>&1 || { grep -A5 -i 'error' build/build-cuda.log | head -n 60 && return 1; }
  folder=$(mktemp -d)
  mkdir "$folder/lib"
  for one in "${targets[@]}"; do
    found=$(find build/cuda/src build/cuda/tests -type f \( -name "$one" -o -name "lib$one.so" \) | head -n 1)
    strip -o "$folder/$(basename "$found")" "$found"
  done
  # Everything but the C library, the compiler's own and CUDA's.
  for one in "$folder"/*; do [[ -d $one ]] || ldd "$one"; done | awk '$3 ~ /^\// { print $3 }' | sort -u |
    grep -Ev '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*|libcuda[^/]*|libcublas[^/]*|libcudnn[^/]*|libnccl|libnvidia[^/]*)[.]so' |
    xargs -r cp -L -t "$folder/lib"
  tar -C "$folder" -czf "$file" .
  rm -r "$folder"
  printf '%s: %d bytes\n' "$file" "$(stat -c %s "$file")"
}

unpack_programs() {
  local file=${1:-$root_of_pack/build/gpu_pack.tar.gz} folder=${2:-/tmp/gpu_pack} name path
  mkdir -p "$folder" && tar -C "$folder" -xzf "$file" || return 1
  LD_LIBRARY_PATH=$folder:$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  for name in libcublasLt.so.13 libcudart.so.13 libnccl.so.2 libcudnn.so.9; do
    path=$(ldconfig -p | awk -v name="$name" '$1 == name { print $NF; exit }')
    [[ -n $path ]] || path=$(find /usr/local /usr/lib /opt -name "$name" 2>/dev/null | head -n 1)
    if [[ -n $path ]]; then LD_LIBRARY_PATH+=:$(dirname "$path"); else echo "pack_gpu: $name was not found here" >&2; fi
  done
  export LD_LIBRARY_PATH
}

case ${1:-} in
  libraries | programs) "pack_$1" "${@:2}" ;;
  unpack) unpack_programs "${@:2}" ;;
  *) sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 2 ;;
esac
