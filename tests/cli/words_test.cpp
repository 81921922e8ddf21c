// What the commands say: plans, origins, help, completion and manual, with and without colours.
#include <gtest/gtest.h>

#include "cli/run_folder.h"

namespace plimsoll::tests {
namespace {

class Words : public testing::Test {
 protected:
  std::string output(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {}) {
    const Ended ended = folder_.plimsoll(arguments, environment);
    EXPECT_EQ(ended.exit_code, 0) << testing::PrintToString(arguments) << "\n" << ended.err;
    EXPECT_EQ(ended.err, "");
    return ended.out;
  }

  void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << "expected: " << part << "\nin:\n" << text;
  }

  RunFolder folder_;
};

const std::vector<std::string> kCommands{"train",  "plan",   "explain", "eval",       "generate",
                                         "import", "export", "inspect", "completion", "manual"};

TEST_F(Words, PlanAsJson) {
  const base::Json plan = base::parse_json(output({"plan", "run.json", "--json", "--out", "plan.json"}), "plan", {.strict = true});
  ASSERT_EQ(plan.at("candidates").size(), 1u);
  const base::Json& candidate = plan.at("candidates").at(0);
  EXPECT_TRUE(candidate.at("fits").as_bool());
  EXPECT_TRUE(candidate.at("reason").is_null());
  const std::int64_t peak = candidate.at("peak_bytes").at("all").at("device").as_integer();
  std::int64_t sum = 0;
  for (const base::JsonMember& kind : candidate.at("device_bytes_by_kind").as_object()) sum += kind.value.as_integer();
  EXPECT_EQ(sum, peak);
  // The stored plan's arena, and what a training then reports, are the same bytes.
  const base::Json stored = base::parse_json(folder_.read("plan.json"), "plan.json", {.strict = true});
  EXPECT_EQ(stored.at("classes").at(0).at("arena").at(0).as_integer(), peak);
  ASSERT_EQ(folder_.plimsoll({"train", "run.json"}).exit_code, 0);
  for (const std::string& reported : column(folder_.read("out/metrics.jsonl"), "peak_bytes")) {
    EXPECT_EQ(reported, "{\"device\":" + std::to_string(peak) + "}");
  }
  EXPECT_EQ(folder_.read("out/plan.json"), folder_.read("plan.json"));
}

TEST_F(Words, PlanWritesNothingUnlessAsked) {
  const std::vector<std::string> before = folder_.files();
  output({"plan", "run.json"});
  output({"plan", "run.json", "--full"});
  output({"explain", "run.json"});
  EXPECT_EQ(folder_.files(), before);
}

TEST_F(Words, PlansCompared) {
  output({"plan", "run.json", "--out", "a.json"});
  output({"plan", "run.json", "--out", "b.json"});
  output({"plan", "run.json", "--set", "batch.micro=4", "--out", "c.json"});
  EXPECT_EQ(output({"inspect", "a.json", "--diff", "b.json"}), "the plans are equal\n");
  expect_parts(output({"inspect", "a.json", "--diff", "c.json"}), {"- ", "+ ", "tokens i32[2, 16]", "tokens i32[4, 16]"});
  // Figures come before the lines that they sum up.
  const std::string compared = output({"inspect", "a.json", "--diff", "c.json"});
  EXPECT_TRUE(compared.starts_with("  ")) << compared.substr(0, 80);
  for (const char* part : {"before", "device, fullest rank", "activation at the device's peak", "train: calls of a rank", "ranks"})
    EXPECT_LT(compared.find(part), compared.find("\n- ")) << part;
  const base::Json figures = base::parse_json(output({"inspect", "a.json", "--diff", "c.json", "--json"}), "diff", {.strict = true});
  const base::Json peaks = base::parse_json(output({"plan", "run.json", "--json"}), "plan").at("candidates").at(0).at("peak_bytes");
  EXPECT_EQ(figures.at("summary").at("device, fullest rank").at("before").as_integer(),
            peaks.as_object().begin()->value.at("device").as_integer());
  EXPECT_EQ(figures.at("summary").at("train: micro-batches").at("before").as_integer(),
            2 * figures.at("summary").at("train: micro-batches").at("after").as_integer());
  EXPECT_GT(figures.at("differences").size(), 0u);
  output({"plan", "run.json", "--set", "strategy.data=2", "--out", "d.json"});
  expect_parts(output({"inspect", "a.json", "--diff", "d.json"}), {"train: all_reduce over data, sent by a rank", "new"});
  expect_parts(output({"inspect", "a.json"}), {"device arena", "parameters", "waterline over the"});
  EXPECT_EQ(base::parse_json(output({"inspect", "a.json", "--json"}), "a", {.strict = true}),
            base::parse_json(folder_.read("a.json"), "a"));
}

TEST_F(Words, InspectOfTokens) {
  folder_.write("tokens.bin", std::string("\1\0\2\0\3\0", 6));
  expect_parts(output({"inspect", "tokens.bin"}), {"3 tokens", "largest id 3"});
  const base::Json json = base::parse_json(output({"inspect", "tokens.bin", "--json"}), "tokens", {.strict = true});
  EXPECT_EQ(json.at("tokens").as_integer(), 3);
  EXPECT_EQ(json.at("largest_id").as_integer(), 3);
}

TEST_F(Words, ExplainNamesOrigins) {
  const std::vector<std::string> lines = lines_of(output({"explain", "run.json", "--set", "seed=9"}));
  const auto row = [&](std::string_view key) {
    for (const std::string& line : lines) {
      if (line.starts_with(key) && line[key.size()] == ' ') return line;
    }
    return std::string("none");
  };
  expect_parts(row("steps"), {" 6 ", "run.json:5:12"});
  expect_parts(row("seed"), {" 9 ", "--set seed=9"});
  expect_parts(row("optimizer.type"), {"adamw", "default"});
  expect_parts(row("model.ffn"), {" 64 ", "derived: 4 x width"});
  const base::Json json = base::parse_json(output({"explain", "run.json", "--json"}), "explain", {.strict = true});
  EXPECT_EQ(json.at("steps").at("value").as_integer(), 6);
  EXPECT_EQ(json.at("steps").at("origin").as_string(), "run.json:5:12");
}

TEST_F(Words, NoEscapeCodesOutsideATerminal) {
  for (const std::vector<std::string>& environment :
       {std::vector<std::string>{}, {"NO_COLOR=1"}, {"TERM=xterm-256color", "COLORTERM=truecolor"}}) {
    std::filesystem::remove_all(folder_.path("out"));
    std::string said = output({"train", "run.json"}, environment);
    said += output({"plan", "run.json"}, environment) + output({"inspect", "out/plan.json"}, environment);
    said += output({"eval", "run.json"}, environment) + output({"explain", "run.json"}, environment);
    EXPECT_EQ(said.find('\x1b'), std::string::npos) << testing::PrintToString(environment);
    EXPECT_EQ(said.find('\r'), std::string::npos) << testing::PrintToString(environment);
  }
}

// `script` gives its child a terminal, so that what a person sees can be looked at.
TEST_F(Words, ColoursInATerminalUnlessUnwanted) {
  if (find_program("script").empty()) GTEST_SKIP() << "needs the program script (util-linux)";
  const std::string command = std::string(PLIMSOLL_PROGRAM) + " plan run.json";
  const auto seen = [&](const std::vector<std::string>& environment) {
    return Child({"script", "-qec", command, "/dev/null"}, folder_.path(), environment).wait().out;
  };
  EXPECT_NE(seen({"TERM=xterm-256color"}).find("\x1b["), std::string::npos);
  EXPECT_EQ(seen({"TERM=xterm-256color", "NO_COLOR=1"}).find('\x1b'), std::string::npos);
  EXPECT_EQ(seen({"TERM=dumb"}).find('\x1b'), std::string::npos);
}

// A log on a full disk, or none at all: errors keep their exit codes, and a training its weights.
TEST_F(Words, ThatFindNobodyChangeNothing) {
  const std::string program = plimsoll_command({}).front();
  const auto ended = [&](const std::string& arguments) {
    return Child({"/bin/sh", "-c", program + " " + arguments}, folder_.path()).wait().exit_code;
  };
  EXPECT_EQ(ended("train nothing.json 2>/dev/full"), 2);
  EXPECT_EQ(ended("train nothing.json >&- 2>&-"), 2);
  ASSERT_EQ(ended("train run.json --set out=heard"), 0);
  const std::string file = "/checkpoints/step-00000006/data-00000.bin";
  for (const std::string streams : {">/dev/full 2>/dev/full", ">&- 2>&-", "<&- >&- 2>&-"}) {
    std::filesystem::remove_all(folder_.path("unheard"));
    EXPECT_EQ(ended("train run.json --set out=unheard --set eval.every=1000 --set data.valid= " + streams), 0) << streams;
    EXPECT_EQ(folder_.read("unheard" + file), folder_.read("heard" + file)) << streams;
  }
  // Whoever read them has gone.
  std::filesystem::remove_all(folder_.path("unheard"));
  Child({"/bin/sh", "-c", "{ " + program + " train run.json --set out=unheard; echo $? >code; } 2>&1 | true"}, folder_.path()).wait();
  EXPECT_EQ(folder_.read("code"), "0\n");
  EXPECT_EQ(folder_.read("unheard" + file), folder_.read("heard" + file));
}

TEST_F(Words, HelpShowsCommandsAndDefaults) {
  const std::string help = output({"--help"});
  expect_parts(help, kCommands);
  expect_parts(help, {"Exit codes: 0 done, 2 bad input, 3"});
  expect_parts(output({"generate", "--help"}), {"--tokens", "=200", "--temperature", "=0", "--top-p", "=1"});
  for (const std::string& command : kCommands) expect_parts(output({command, "--help"}), {"Usage: plimsoll " + command});
  EXPECT_TRUE(output({"--version"}).starts_with("plimsoll "));
}

TEST_F(Words, Completion) {
  for (const char* shell : {"bash", "zsh", "fish"}) expect_parts(output({"completion", shell}), kCommands);
  // A quote within a description would open a text that never ends.
  for (const std::string& line : lines_of(output({"completion", "fish"}))) {
    bool quoted = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (quoted && line[i] == '\\') {
        ++i;
      } else if (line[i] == '\'') {
        quoted = !quoted;
      }
    }
    EXPECT_FALSE(quoted) << line;
  }
  folder_.write("completion.bash", output({"completion", "bash"}));
  const auto bash = [&](const std::string& script) { return Child({"bash", "-c", script}, folder_.path()).wait(); };
  const Ended checked = bash("bash -n completion.bash");
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  const Ended command = bash("source completion.bash; COMP_WORDS=(plimsoll tr) COMP_CWORD=1; _plimsoll; echo ${COMPREPLY[*]}");
  EXPECT_EQ(command.out, "train\n") << command.err;
  const Ended option =
      bash("source completion.bash; COMP_WORDS=(plimsoll train run.json --tr) COMP_CWORD=3; _plimsoll; echo ${COMPREPLY[*]}");
  EXPECT_EQ(option.out, "--trace\n") << option.err;
  const Ended choice =
      bash("source completion.bash; COMP_WORDS=(plimsoll export a b --dtype f) COMP_CWORD=5; _plimsoll; echo ${COMPREPLY[*]}");
  EXPECT_EQ(choice.out, "f32 fp16\n") << choice.err;
  const Ended argument = bash("source completion.bash; COMP_WORDS=(plimsoll completion '') COMP_CWORD=2; _plimsoll; echo ${COMPREPLY[*]}");
  EXPECT_EQ(argument.out, "bash zsh fish\n") << argument.err;
}

TEST_F(Words, Manual) {
  const std::string page = output({"manual"});
  expect_parts(page, kCommands);
  expect_parts(page, {".SH EXIT STATUS", "NO_COLOR", ".B plimsoll export\n\\fIfrom\\fR \\fIto\\fR [options]"});
  if (find_program("groff").empty()) GTEST_SKIP() << "needs groff to set the page";
  folder_.write("plimsoll.1", page);
  const Ended set = Child({"groff", "-man", "-Tascii", "-P-cbou", "-ww", "plimsoll.1"}, folder_.path()).wait();
  EXPECT_EQ(set.exit_code, 0);
  EXPECT_EQ(set.err, "");
  expect_parts(set.out, {"--temperature", "(default 200)"});
}

}  // namespace
}  // namespace plimsoll::tests
