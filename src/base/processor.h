// What this machine's processor can run, found out without running anything that could end the process.
//
// A flag in CPUID is not enough. A virtual machine may show the AMX flags and hide the leaf that describes the tiles (oneDNN then
// executes tile instructions with an empty palette and dies), the kernel may refuse the tiles, an emulator may lack instructions
// that it announces. So each level is believed only when its flags, the operating system's register state and, for AMX, leaf 0x1d
// and the kernel's permission are there, and when a child process has executed its instructions and lived.
//
//   const base::Processor& processor = base::processor();
//   if (processor.isa >= base::Isa::avx512_bf16) multiply_in_bf16();
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::base {

// Instruction sets that choices are made between; each one includes those before it.
enum class Isa : std::uint8_t {
  other,        // not x86-64: Highway's choice for the machine
  sse,          // x86-64 without AVX2: below what Plimsoll runs on
  avx2,         // AVX2, FMA, F16C, BMI
  avx512,       // F, BW, CD, DQ, VL
  avx512_bf16,  // bf16 dot products, and VNNI
  amx,          // tiles of bf16 and int8
};

struct Processor {
  std::string name{};     // as it calls itself
  Isa best = Isa::other;  // what it can do
  Isa isa = Isa::other;   // what is used: `best`, or less where PLIMSOLL_ISA says so
  std::string missing{};  // why not the level above `best`; empty where there is none
};

// How a processor is asked. Tests answer in its place.
struct ProcessorQuestions {
  struct Registers {
    std::uint32_t a = 0, b = 0, c = 0, d = 0;
  };
  std::function<Registers(std::uint32_t leaf, std::uint32_t subleaf)> cpuid{};
  std::function<std::uint64_t()> saved_state{};  // register files that the operating system saves (XCR0); asked only where it can be
  std::function<bool()> tiles_permitted{};       // asks the kernel for the tiles' state
  std::function<bool(Isa)> survives{};           // executes instructions of the level where that can harm nobody
};

// `wanted`: the value of PLIMSOLL_ISA; empty: the best there is. bad_input when it names no level, or one above the best.
Processor examine(const ProcessorQuestions& questions, std::string_view wanted);

// This machine's, examined once.
const Processor& processor();

// not_legal, with what was found, on x86-64 without AVX2.
void require_supported(const Processor& processor);

std::string_view name_of(Isa isa);
std::vector<Isa> levels_up_to(Isa best);  // those that PLIMSOLL_ISA may name there

// One line: "Intel(R) Xeon(R) Processor: avx512 (avx512_bf16: the processor does not announce avx512_bf16)".
std::string to_string(const Processor& processor);

}  // namespace plimsoll::base
