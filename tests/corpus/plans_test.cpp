// Every plan of the corpus is the one that was stored: a refactoring changes no byte of any.
//
// PLIMSOLL_DUMP=FOLDER writes the plans there, NAME.txt for people and NAME.json with every field, so that those of two commits can be
// compared (./dev corpus --diff).
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ranges>
#include <set>

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/random.h"
#include "corpus/cases.h"
#include "corpus/stored.h"
#include "corpus/tables.h"
#include "executor/cuda/load/cuda_backend.h"
#include "plan/file.h"
#include "plan/print.h"

namespace plimsoll::corpus {
namespace {

constexpr const char* kHead = "name, then what the plan is (FNV-1a of its JSON, bytes of the largest arenas), or why there is none";

std::string on_one_line(std::string text) {
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at)) text.replace(at, 1, " | ");
  return text;
}

std::string file_name(std::string name) {
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

// An object of a list to a line, for diff.
std::string in_lines(std::string json) {
  for (std::size_t at = json.find("},{"); at != std::string::npos; at = json.find("},{", at)) json.replace(at, 3, "},\n{");
  return json + "\n";
}

void dump(const Case& one, const plan::Plan& plan, const std::string& json) {
  const char* folder = std::getenv("PLIMSOLL_DUMP");
  if (folder == nullptr) return;
  std::filesystem::create_directories(folder);
  const std::string path = fmt::format("{}/{}", folder, file_name(one.name));
  std::ofstream(path + ".txt") << plan::to_string(plan);
  std::ofstream(path + ".json") << in_lines(json);
}

std::string summary(const plan::Plan& plan, const std::string& json) {
  std::size_t buffers = 0;
  std::size_t calls = 0;
  std::array<std::int64_t, plan::kTiers> arenas{};
  for (const plan::RankClass& rank_class : plan.classes) {
    buffers += rank_class.buffers.size();
    for (const plan::Program& program : rank_class.programs) calls += static_cast<std::size_t>(plan::moments_of(program));
    for (std::size_t tier = 0; tier < plan::kTiers; ++tier) arenas[tier] = std::max(arenas[tier], rank_class.arena[tier].count);
  }
  std::string text =
      fmt::format("{:016x} {} procedures {} calls {} buffers", base::hash_name(json), plan.procedures.size(), calls, buffers);
  for (std::size_t tier = 0; tier < plan::kTiers; ++tier) {
    if (arenas[tier] > 0) text += fmt::format(" {} {}", plan::name_of(static_cast<plan::Tier>(tier)), arenas[tier]);
  }
  return text;
}

std::string outcome_of(const Case& one) {
  try {
    const plan::Plan plan = plan_of(one);
    const std::string json = plan::to_text(plan);
    dump(one, plan, json);
    return summary(plan, json);
  } catch (const base::Error& error) {
    return fmt::format("refused: {}", on_one_line(error.what()));
  }
}

std::vector<Line> outcomes_of(const std::vector<Case>& list) {
  std::vector<Line> lines;
  for (const Case& one : list) lines.push_back({one.name, outcome_of(one)});
  return lines;
}

TEST(Plans, AreThoseOfTheCorpus) {
  if (!PLIMSOLL_HAS_ONEDNN) GTEST_SKIP() << "built without oneDNN, whose kernels the stored plans have";
  const std::vector<Line> lines = outcomes_of(cases());
  const std::string found = differences("plans.txt", kHead, lines);
  EXPECT_TRUE(found.empty()) << found;

  // A row that is always refused guards nothing.
  std::set<std::string> planned;
  for (const Line& line : lines) {
    if (line.text.starts_with("refused")) continue;
    for (const auto part : std::views::split(line.name, '/')) planned.emplace(part.begin(), part.end());
  }
  const std::set<std::string_view> only_refused{"zero1-main", "zero3-groups-of-3", "dualpipe", "gradients-alone"};
  for (const std::span<const Row> table : {layouts(), memory(), models(), numbers(), batches(), targets()}) {
    for (const Row& row : table) EXPECT_NE(planned.contains(std::string(row.name)), only_refused.contains(row.name)) << row.name;
  }
}

// The table of CUDA kernels needs no GPU.
TEST(Plans, OfGpusAreThoseOfTheCorpus) {
  if (const std::optional<std::string> why = executor::why_no_cuda()) GTEST_SKIP() << *why;
  const std::string found = differences("plans_cuda.txt", kHead, outcomes_of(cases_for(executor::cuda_backend())));
  EXPECT_TRUE(found.empty()) << found;
}

}  // namespace
}  // namespace plimsoll::corpus
