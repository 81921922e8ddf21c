#include "base/processor.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace plimsoll::base {

namespace {

using Registers = ProcessorQuestions::Registers;

constexpr std::array<std::pair<Isa, std::string_view>, 6> kNames{{{Isa::other, "other"},
                                                                  {Isa::sse, "sse"},
                                                                  {Isa::avx2, "avx2"},
                                                                  {Isa::avx512, "avx512"},
                                                                  {Isa::avx512_bf16, "avx512_bf16"},
                                                                  {Isa::amx, "amx"}}};

constexpr std::uint64_t kVectorState = 0x6;    // XCR0: 128 and 256 bits
constexpr std::uint64_t kWideState = 0xe0;     // masks and 512 bits
constexpr std::uint64_t kTileState = 0x60000;  // the tiles and their shape

struct Flag {
  std::string_view name;
  std::uint32_t leaf;
  std::uint32_t subleaf;
  std::uint32_t Registers::* where;
  int bit;
};

constexpr std::array kAvx2Flags{Flag{"fma", 1, 0, &Registers::c, 12},          Flag{"avx", 1, 0, &Registers::c, 28},
                                Flag{"f16c", 1, 0, &Registers::c, 29},         Flag{"bmi1", 7, 0, &Registers::b, 3},
                                Flag{"avx2", 7, 0, &Registers::b, 5},          Flag{"bmi2", 7, 0, &Registers::b, 8},
                                Flag{"lzcnt", 0x80000001, 0, &Registers::c, 5}};
constexpr std::array kAvx512Flags{Flag{"avx512f", 7, 0, &Registers::b, 16}, Flag{"avx512dq", 7, 0, &Registers::b, 17},
                                  Flag{"avx512cd", 7, 0, &Registers::b, 28}, Flag{"avx512bw", 7, 0, &Registers::b, 30},
                                  Flag{"avx512vl", 7, 0, &Registers::b, 31}};
constexpr std::array kBf16Flags{Flag{"avx512_vnni", 7, 0, &Registers::c, 11}, Flag{"avx512_bf16", 7, 1, &Registers::a, 5}};
constexpr std::array kAmxFlags{Flag{"amx_bf16", 7, 0, &Registers::d, 22}, Flag{"amx_tile", 7, 0, &Registers::d, 24},
                               Flag{"amx_int8", 7, 0, &Registers::d, 25}};
constexpr Flag kOsSavesState{"osxsave", 1, 0, &Registers::c, 27};

// A leaf beyond the last answers with what the last one holds: asked for only where it exists.
Registers ask(const ProcessorQuestions& questions, std::uint32_t leaf, std::uint32_t subleaf = 0) {
  const std::uint32_t range = leaf & 0x80000000U;
  if (leaf > questions.cpuid(range, 0).a) return {};
  if (subleaf > 0 && leaf == 7 && subleaf > questions.cpuid(7, 0).a) return {};
  return questions.cpuid(leaf, subleaf);
}

bool has(const ProcessorQuestions& questions, const Flag& flag) {
  return (ask(questions, flag.leaf, flag.subleaf).*flag.where >> flag.bit & 1U) != 0;
}

std::optional<std::string> lacks_flags(const ProcessorQuestions& questions, std::span<const Flag> flags) {
  std::vector<std::string_view> absent;
  for (const Flag& flag : flags)
    if (!has(questions, flag)) absent.push_back(flag.name);
  if (absent.empty()) return std::nullopt;
  return fmt::format("the processor does not announce {}", fmt::join(absent, ", "));
}

std::optional<std::string> lacks_state(const ProcessorQuestions& questions, std::uint64_t state) {
  if (has(questions, kOsSavesState) && (questions.saved_state() & state) == state) return std::nullopt;
  return "the operating system does not save its registers";
}

// oneDNN reads the tiles' shape from here, and configures them with zeros where it is not.
std::optional<std::string> lacks_palette(const ProcessorQuestions& questions) {
  constexpr std::uint32_t kLeaf = 0x1d;
  if (const std::uint32_t last = questions.cpuid(0, 0).a; last < kLeaf)
    return fmt::format("CPUID ends at leaf {:#x}, and leaf {:#x} describes the tiles", last, kLeaf);
  const Registers palette = ask(questions, kLeaf, 1);
  const bool described = palette.a == (8192U | 1024U << 16) && palette.b == (64U | 8U << 16) && (palette.c & 0xffffU) == 16;
  if (described) return std::nullopt;
  return fmt::format("CPUID leaf {:#x} describes no tiles of 16 rows of 64 bytes (found {:#x}, {:#x}, {:#x})", kLeaf, palette.a, palette.b,
                     palette.c);
}

std::optional<std::string> refusal(const ProcessorQuestions& questions, Isa isa) {
  switch (isa) {
    case Isa::other:
    case Isa::sse: return std::nullopt;
    case Isa::avx2:
      if (auto reason = lacks_flags(questions, kAvx2Flags)) return reason;
      return lacks_state(questions, kVectorState);
    case Isa::avx512:
      if (auto reason = lacks_flags(questions, kAvx512Flags)) return reason;
      return lacks_state(questions, kVectorState | kWideState);
    case Isa::avx512_bf16: return lacks_flags(questions, kBf16Flags);
    case Isa::amx:
      if (auto reason = lacks_flags(questions, kAmxFlags)) return reason;
      if (auto reason = lacks_palette(questions)) return reason;
      if (auto reason = lacks_state(questions, kVectorState | kWideState | kTileState)) return reason;
      if (!questions.tiles_permitted()) return "the kernel does not permit tiles";
      return std::nullopt;
  }
  return std::nullopt;
}

std::string processor_name(const ProcessorQuestions& questions) {
  constexpr std::uint32_t kFirst = 0x80000002;
  std::string name;
  for (std::uint32_t leaf = kFirst; leaf < kFirst + 3; ++leaf) {
    const Registers part = ask(questions, leaf);
    char text[16];
    std::memcpy(text, &part, sizeof text);
    name.append(text, sizeof text);
  }
  name.resize(std::strlen(name.c_str()));
  name.erase(0, name.find_first_not_of(' '));
  return name.empty() ? "unnamed processor" : name;
}

Isa limited(Isa best, std::string_view wanted) {
  if (wanted.empty()) return best;
  std::vector<std::string_view> names;
  for (const Isa level : levels_up_to(best)) {
    if (name_of(level) == wanted) return level;
    names.push_back(name_of(level));
  }
  bad_input("PLIMSOLL_ISA is '{}', expected what this processor can run: {}", wanted, fmt::join(names, ", "));
}

#if defined(__x86_64__)

// Each executes a few instructions of its level on values that are read where the compiler cannot see them, and checks the result.

__attribute__((target("avx2,fma"))) bool try_avx2(float one) {
  float sums[8];
  _mm256_storeu_ps(sums, _mm256_fmadd_ps(_mm256_set1_ps(one), _mm256_set1_ps(2.0F), _mm256_set1_ps(one)));
  return sums[0] == 3.0F && sums[7] == 3.0F;
}

__attribute__((target("avx512f"))) bool try_avx512(float one) {
  float sums[16];
  _mm512_storeu_ps(sums, _mm512_fmadd_ps(_mm512_set1_ps(one), _mm512_set1_ps(2.0F), _mm512_set1_ps(one)));
  return sums[0] == 3.0F && sums[15] == 3.0F;
}

__attribute__((target("avx512f,avx512bw,avx512bf16"))) bool try_bf16(float one) {
  const __m512bh ones = _mm512_cvtne2ps_pbh(_mm512_set1_ps(one), _mm512_set1_ps(one));
  float sums[16];
  _mm512_storeu_ps(sums, _mm512_dpbf16_ps(_mm512_set1_ps(one), ones, ones));
  return sums[0] == 3.0F && sums[15] == 3.0F;
}

__attribute__((target("avx512f,amx-tile,amx-bf16"))) bool try_amx(float one) {
  constexpr int kRows = 16;
  constexpr int kRowBytes = 64;
  struct alignas(64) Shape {
    std::uint8_t palette = 1, start = 0;
    std::uint8_t unused[14] = {};
    std::uint16_t bytes[16] = {};
    std::uint8_t rows[16] = {};
  } shape;
  for (int tile = 0; tile < 3; ++tile) shape.bytes[tile] = kRowBytes, shape.rows[tile] = kRows;
  std::uint32_t bits = 0;
  std::memcpy(&bits, &one, sizeof bits);
  alignas(64) std::uint32_t ones[kRows * kRowBytes / 4];
  for (std::uint32_t& pair : ones) pair = (bits & 0xffff0000U) | bits >> 16;
  alignas(64) float sums[kRows * kRowBytes / 4];
  _tile_loadconfig(&shape);
  _tile_zero(0);
  _tile_loadd(1, ones, kRowBytes);
  _tile_loadd(2, ones, kRowBytes);
  _tile_dpbf16ps(0, 1, 2);
  _tile_stored(0, sums, kRowBytes);
  _tile_release();
  return sums[0] == 32.0F && sums[kRows * kRowBytes / 4 - 1] == 32.0F;
}

bool try_level(Isa isa) {
  volatile float one = 1.0F;
  switch (isa) {
    case Isa::other:
    case Isa::sse: return true;
    case Isa::avx2: return try_avx2(one);
    case Isa::avx512: return try_avx512(one);
    case Isa::avx512_bf16: return try_bf16(one);
    case Isa::amx: return try_amx(one);
  }
  return false;
}

bool tiles_permitted() {
  constexpr long kRequest = 0x1023;  // ARCH_REQ_XCOMP_PERM: for this process and what it starts
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

// In a child, which an unknown instruction ends in our place.
bool survives(Isa isa) {
  const pid_t child = fork();
  if (child < 0) return true;  // nobody can try it: what the processor announces has to do
  if (child == 0) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) std::signal(signal, SIG_DFL);
    _exit(try_level(isa) ? 0 : 1);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return true;  // somebody else reaps children here
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

ProcessorQuestions questions_here() {
  return {.cpuid =
              [](std::uint32_t leaf, std::uint32_t subleaf) {
                Registers found;
                __cpuid_count(leaf, subleaf, found.a, found.b, found.c, found.d);
                return found;
              },
          .saved_state =
              [] {
                std::uint32_t low = 0;
                std::uint32_t high = 0;
                __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
                return std::uint64_t{high} << 32 | low;
              },
          .tiles_permitted = tiles_permitted,
          .survives = survives};
}

#endif

}  // namespace

Processor examine(const ProcessorQuestions& questions, std::string_view wanted) {
  Processor processor{.name = processor_name(questions), .best = Isa::sse};
  for (const Isa isa : levels_up_to(Isa::amx)) {
    if (const auto reason = refusal(questions, isa)) {
      processor.missing = fmt::format("{}: {}", name_of(isa), *reason);
      break;
    }
    processor.best = isa;
  }
  // One trial, of the highest level, does for those below it; where it fails, the next one is tried.
  while (processor.best > Isa::sse && !questions.survives(processor.best)) {
    processor.missing = fmt::format("{}: the processor announces it, but a trial of its instructions failed", name_of(processor.best));
    processor.best = static_cast<Isa>(static_cast<int>(processor.best) - 1);
  }
  processor.isa = limited(processor.best, wanted);
  return processor;
}

const Processor& processor() {
  static const Processor once = [] {
    const char* wanted = std::getenv("PLIMSOLL_ISA");
#if defined(__x86_64__)
    return examine(questions_here(), wanted == nullptr ? "" : wanted);
#else
    if (wanted != nullptr && *wanted != '\0') bad_input("PLIMSOLL_ISA is '{}', and this is no x86-64 processor; leave it unset", wanted);
    return Processor{.name = "not x86-64"};
#endif
  }();
  return once;
}

void require_supported(const Processor& processor) {
  if (processor.best != Isa::sse) return;
  not_legal("this processor ({}) lacks AVX2, which Plimsoll needs ({}); use an x86-64 processor of 2013 or later", processor.name,
            processor.missing);
}

std::string_view name_of(Isa isa) {
  return std::find_if(kNames.begin(), kNames.end(), [isa](const auto& row) { return row.first == isa; })->second;
}

std::vector<Isa> levels_up_to(Isa best) {
  std::vector<Isa> levels;
  for (const Isa isa : {Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx})
    if (isa <= best) levels.push_back(isa);
  return levels;
}

std::string to_string(const Processor& processor) {
  std::string text = fmt::format("{}: {}", processor.name, name_of(processor.isa));
  if (processor.isa != processor.best) text += fmt::format(", by PLIMSOLL_ISA, of {}", name_of(processor.best));
  if (!processor.missing.empty()) text += fmt::format(" ({})", processor.missing);
  return text;
}

}  // namespace plimsoll::base
