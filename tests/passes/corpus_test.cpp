// The graphs that passes leave of the corpus's runs read back to the same from their printed form.
#include <algorithm>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "base/error.h"
#include "corpus/cases.h"
#include "graph/text.h"
#include "lowering/pass_table.h"

namespace plimsoll::corpus {
namespace {

// One case of so many.
constexpr std::size_t kStep = 5;

TEST(PrintedGraphs, OfEveryPassReadBack) {
  std::map<std::string, int, std::less<>> read;
  const std::vector<Case> all = cases();
  const auto read_back = [&](const Case& one) {
    try {
      train::SessionOptions options = options_of(one, run_of(one));
      options.pass_done = [&](std::string_view pass, const graph::Graph& graph) {
        ++read[std::string(pass)];
        const std::string text = graph::to_string(graph);
        EXPECT_TRUE(graph::parse_graph(text, "printed") == graph) << one.name << ", after " << pass;
      };
      train::plan_session(options);
    } catch (const base::Error& error) {
      EXPECT_EQ(error.kind(), base::ErrorKind::not_legal) << one.name << ": " << error.what();
    }
  };
  for (std::size_t index = 0; index < all.size(); index += kStep) {
    const Case& one = all[index];
    if (!one.name.starts_with("large/") && one.target != Target::generate) read_back(one);
  }
  // No row of the corpus stores frozen weights in fewer bytes.
  Case stored = *std::find_if(all.begin(), all.end(), [](const Case& one) { return one.name.find("f32-frozen") != std::string::npos; });
  stored.set.emplace_back("freeze_as=int8");
  read_back(stored);
  // Nor does one send codes.
  Case coded = *std::find_if(all.begin(), all.end(), [](const Case& one) { return one.name.starts_with("pipe2-tensor2/kept/gpt2/"); });
  coded.set.insert(coded.set.end(), {"communication.activations=int8", "communication.gradients=int8"});
  read_back(coded);
  read["waiting_update"] = 1;  // of a program beside the step
  for (const lowering::PassLine& pass : lowering::all_passes()) EXPECT_GT(read[std::string(pass.name)], 0) << pass.name;
}

}  // namespace
}  // namespace plimsoll::corpus
