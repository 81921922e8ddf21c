// Every pass leaves of a small graph what its file says. ./dev passes --update writes what it leaves now.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "graph/text.h"
#include "passes/case.h"

namespace plimsoll::passes {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<std::filesystem::path> files() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(PLIMSOLL_SOURCE_DIR "/tests/passes")) {
    if (entry.path().extension() == ".txt" && entry.path().filename() != "CMakeLists.txt") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool updates() {
  const char* update = std::getenv("PLIMSOLL_UPDATE");
  return update != nullptr && *update != '\0';
}

class Passes : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Passes, LeavesWhatTheFileSays) {
  const std::string text = text_of(GetParam());
  Case one = parse_case(text, GetParam().filename().string());
  const graph::Graph in = graph::parse_graph(one.in, "in");
  for (const std::string& problem : graph::problems(in)) ADD_FAILURE() << "in: " << problem;
  const graph::Graph out = run_case(one, in);
  for (const std::string& problem : graph::problems(out)) ADD_FAILURE() << "out: " << problem;
  one.in = graph::to_string(in);
  one.out = graph::to_string(out);
  EXPECT_TRUE(graph::parse_graph(one.out, "out") == out);
  if (updates()) {
    std::ofstream(GetParam()) << to_string(one);
  } else {
    EXPECT_EQ(to_string(one), text) << "where the change is wanted: ./dev passes --update";
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Passes, testing::ValuesIn(files()), [](const auto& each) { return each.param.stem().string(); });

TEST(PassFiles, EveryPassHasOne) {
  std::set<std::string> left;
  for (const std::string& name : pass_names()) left.insert(name);
  for (const std::filesystem::path& path : files()) left.erase(parse_case(text_of(path), path.filename().string()).pass());
  for (const std::string& name : left) ADD_FAILURE() << name << " has no file in tests/passes";
}

}  // namespace
}  // namespace plimsoll::passes
