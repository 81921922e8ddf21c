#include "base/processor.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "base/error.h"

namespace plimsoll::base {
namespace {

using Registers = ProcessorQuestions::Registers;

// A processor by what it answers. Starts as a Sapphire Rapids on bare metal.
struct Imagined {
  std::map<std::pair<std::uint32_t, std::uint32_t>, Registers> leaves{
      {{0, 0}, {.a = 0x20}},
      {{1, 0}, {.c = 1U << 12 | 1U << 27 | 1U << 28 | 1U << 29}},
      {{7, 0},
       {.a = 2,
        .b = 1U << 3 | 1U << 5 | 1U << 8 | 1U << 16 | 1U << 17 | 1U << 28 | 1U << 30 | 1U << 31,
        .c = 1U << 11,
        .d = 1U << 22 | 1U << 24 | 1U << 25}},
      {{7, 1}, {.a = 1U << 5}},
      {{0x1d, 1}, {.a = 8192U | 1024U << 16, .b = 64U | 8U << 16, .c = 16}},
      {{0x80000000, 0}, {.a = 0x80000001}},
      {{0x80000001, 0}, {.c = 1U << 5}},
  };
  std::uint64_t saved_state = 0x600e7;
  bool permitted = true;
  std::set<Isa> deadly{};
  std::vector<Isa> tried{};

  Processor examined(std::string_view wanted = "") {
    return examine({.cpuid = [this](std::uint32_t leaf, std::uint32_t subleaf) { return leaves[{leaf, subleaf}]; },
                    .saved_state = [this] { return saved_state; },
                    .tiles_permitted = [this] { return permitted; },
                    .survives =
                        [this](Isa isa) {
                          tried.push_back(isa);
                          return !deadly.contains(isa);
                        }},
                   wanted);
  }
};

TEST(Processor, UsesAllThatIsThere) {
  Imagined imagined;
  const Processor found = imagined.examined();
  EXPECT_EQ(found.best, Isa::amx);
  EXPECT_EQ(found.isa, Isa::amx);
  EXPECT_EQ(found.missing, "");
  EXPECT_EQ(imagined.tried, std::vector<Isa>{Isa::amx});
}

// Virtual machines that end CPUID at leaf 0x1c: oneDNN reads an empty palette there and dies at its first tile instruction.
TEST(Processor, TakesNoTilesThatCpuidDoesNotDescribe) {
  Imagined hidden;
  hidden.leaves[{0, 0}].a = 0x1c;
  const Processor found = hidden.examined();
  EXPECT_EQ(found.isa, Isa::avx512_bf16);
  EXPECT_EQ(found.missing, "amx: CPUID ends at leaf 0x1c, and leaf 0x1d describes the tiles");
  EXPECT_EQ(hidden.tried, std::vector<Isa>{Isa::avx512_bf16});

  Imagined empty;
  empty.leaves[{0x1d, 1}] = {};
  EXPECT_EQ(empty.examined().isa, Isa::avx512_bf16);
}

TEST(Processor, TakesNoTilesWithoutPermissionOrState) {
  Imagined refused;
  refused.permitted = false;
  EXPECT_EQ(refused.examined().missing, "amx: the kernel does not permit tiles");
  Imagined unsaved;
  unsaved.saved_state = 0xe7;
  EXPECT_EQ(unsaved.examined().missing, "amx: the operating system does not save its registers");
  EXPECT_EQ(unsaved.examined().isa, Isa::avx512_bf16);
}

TEST(Processor, GoesDownWhereATrialFails) {
  Imagined imagined;
  imagined.deadly = {Isa::amx, Isa::avx512_bf16};
  const Processor found = imagined.examined();
  EXPECT_EQ(found.isa, Isa::avx512);
  EXPECT_NE(found.missing.find("avx512_bf16: the processor announces it, but a trial"), std::string::npos) << found.missing;
  EXPECT_EQ(imagined.tried, (std::vector<Isa>{Isa::amx, Isa::avx512_bf16, Isa::avx512}));
}

TEST(Processor, NamesTheFlagsThatAreAbsent) {
  Imagined haswell;
  haswell.leaves[{7, 0}] = {.b = 1U << 3 | 1U << 5 | 1U << 8};
  haswell.saved_state = 0x7;
  EXPECT_EQ(haswell.examined().isa, Isa::avx2);
  EXPECT_EQ(haswell.examined().missing, "avx512: the processor does not announce avx512f, avx512dq, avx512cd, avx512bw, avx512vl");
}

TEST(Processor, IsRefusedBelowAvx2) {
  Imagined nehalem;
  nehalem.leaves[{0, 0}].a = 0xb;
  nehalem.leaves[{1, 0}] = {};
  nehalem.leaves[{7, 0}] = {};
  const Processor found = nehalem.examined();
  EXPECT_EQ(found.isa, Isa::sse);
  EXPECT_TRUE(nehalem.tried.empty());
  try {
    require_supported(found);
    FAIL() << "a processor without AVX2 was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::not_legal);
    EXPECT_NE(std::string(error.what()).find("lacks AVX2"), std::string::npos) << error.what();
  }
}

TEST(Processor, IsLimitedByName) {
  Imagined imagined;
  EXPECT_EQ(imagined.examined("avx2").isa, Isa::avx2);
  EXPECT_EQ(imagined.examined("avx2").best, Isa::amx);
  EXPECT_THROW(imagined.examined("avx1024"), Error);
  imagined.permitted = false;
  EXPECT_THROW(imagined.examined("amx"), Error);
}

TEST(Processor, ThisOneIsExaminedAndLives) {
  const Processor& here = processor();
  EXPECT_FALSE(here.name.empty());
  EXPECT_LE(here.isa, here.best);
  EXPECT_NE(to_string(here).find(name_of(here.isa)), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::base
