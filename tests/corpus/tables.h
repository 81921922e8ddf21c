// What the cases of the corpus are made of: tables of small differences to one run (run.cpp), each with a name.
#pragma once

#include <span>
#include <string_view>

namespace plimsoll::corpus {

struct Row {
  std::string_view name;
  std::string_view set = "";  // what --set would be given, separated by spaces
};

// Where ranks are and when they work. The first are met by every row of `memory`, the others by its first few.
std::span<const Row> layouts();
inline constexpr std::size_t kLayoutsWithAllMemory = 11;

// What is kept how long and where.
std::span<const Row> memory();
inline constexpr std::size_t kMemoryWithAllLayouts = 4;

std::span<const Row> models();
// Precision, optimizer and what is trained.
std::span<const Row> numbers();
std::span<const Row> batches();

// For whom the plan is made: the processor's kernels, devices that are only described, or those in outline.
std::span<const Row> targets();

// Models of real sizes on a cluster, `outline` where a whole plan would be large.
struct LargeRow {
  std::string_view name;
  std::string_view cluster;
  bool outline = false;
  std::string_view set;
};
std::span<const LargeRow> large_runs();

}  // namespace plimsoll::corpus
