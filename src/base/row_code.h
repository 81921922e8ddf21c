// Code that the rows of a table bring with them (update rules, stored forms), for each instruction set that there is code of. What loops
// over elements is written once, as a template over the row's type, and compiled for each of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/processor.h"

namespace plimsoll::base {

enum class RowCode : std::uint8_t { plain, avx2, avx512 };
inline constexpr std::size_t kRowCodes = 3;

// The most that is to be used here.
inline RowCode code_of_processor() {
  const Isa isa = processor().isa;
  return isa >= Isa::avx512 ? RowCode::avx512 : isa >= Isa::avx2 ? RowCode::avx2 : RowCode::plain;
}

// Pointers to functions, by RowCode. Where there is none for an instruction set, plain code runs.
template <typename Function>
struct CodeOf {
  std::array<Function, kRowCodes> code{};

  Function of(RowCode wanted) const {
    const Function own = code[static_cast<std::size_t>(wanted)];
    return own != nullptr ? own : code[static_cast<std::size_t>(RowCode::plain)];
  }
  Function here() const { return of(code_of_processor()); }
};

}  // namespace plimsoll::base

#if defined(__x86_64__) && !defined(__CUDACC__)
#define PLIMSOLL_AVX2 [[gnu::target("avx2,fma")]]
#define PLIMSOLL_AVX512 [[gnu::target("avx512f,avx512vl,avx512dq,avx512bw,fma")]]
#else
#define PLIMSOLL_AVX2
#define PLIMSOLL_AVX512
#endif

// name_plain<Row>, name_avx2<Row> and name_avx512<Row>, in which `call` is inlined.
#define PLIMSOLL_ROW_CODE(name, parameters, call) \
  template <typename Row>                         \
  void name##_plain parameters {                  \
    call;                                         \
  }                                               \
  template <typename Row>                         \
  PLIMSOLL_AVX2 void name##_avx2 parameters {     \
    call;                                         \
  }                                               \
  template <typename Row>                         \
  PLIMSOLL_AVX512 void name##_avx512 parameters { \
    call;                                         \
  }
