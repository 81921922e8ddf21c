// The pages of `plimsoll plan --html` and of a training: their data agree with the plan, and a browser shows them without a complaint.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "cli/run_folder.h"

namespace plimsoll::tests {
namespace {

constexpr std::size_t kMost = 3'000'000;  // bytes of a page for 64 ranks

// Sixty-four ranks of every axis, with a name that would be markup if it were not escaped.
const std::vector<std::string> kManyRanks{"--set", "model.layers=8",  "--set", "strategy.pipe=8",  "--set", "strategy.tensor=2",
                                          "--set", "strategy.data=4", "--set", "batch.global=128", "--set", "batch.micro=1",
                                          "--set", "strategy.zero=1", "--set", "data.valid=",      "--set", "strategy.schedule=zb-h1"};

class HtmlPage : public testing::Test {
 protected:
  std::string page(const std::vector<std::string>& settings) {
    std::vector<std::string> arguments{"plan", "run.json", "--html", "page.html", "--json"};
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    const Ended ended = folder_.plimsoll(arguments);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    printed_ = base::parse_json(ended.out, "output");
    return folder_.read("page.html");
  }

  base::Json data_of(const std::string& html) {
    const std::string_view open = "<script type=\"application/json\" id=\"data\">";
    const std::size_t begin = html.find(open);
    EXPECT_NE(begin, std::string::npos);
    const std::size_t end = html.find("</script>", begin);
    return base::parse_json(html.substr(begin + open.size(), end - begin - open.size()), "page", {.strict = true});
  }

  RunFolder folder_;
  base::Json printed_;
};

TEST_F(HtmlPage, FetchesNothing) {
  const std::string html = page({});
  for (const char* part : {"http:", "https:", "@import", "url(", "src="}) EXPECT_EQ(html.find(part), std::string::npos) << part;
  EXPECT_EQ(html.find("@data@"), std::string::npos);
}

TEST_F(HtmlPage, HoldsThePlanToTheByte) {
  const base::Json data = data_of(page({}));
  const base::Json& device = data.at("classes").at(0).at("tiers").at(0);
  EXPECT_EQ(device.at("arena").as_integer(), printed_.at("candidates").at(0).at("peak_bytes").at("all").at("device").as_integer());
  // Layers add up to the peak, but for what is rounded away of each.
  std::int64_t fullest = 0;
  for (std::size_t column = 0; column < device.at("at").size(); ++column) {
    std::int64_t sum = 0;
    for (const base::Json& layer : device.at("bytes").as_array()) sum += layer.at(column).as_integer();
    fullest = std::max(fullest, sum * device.at("quantum").as_integer());
  }
  EXPECT_NEAR(static_cast<double>(fullest), static_cast<double>(device.at("peak").at("bytes").as_integer()),
              10.0 * static_cast<double>(device.at("quantum").as_integer()));
  EXPECT_EQ(data.at("traffic").size(), 0u) << "one rank sends nothing";
}

TEST_F(HtmlPage, SixtyFourRanksStaySmall) {
  const std::string html = page(kManyRanks);
  EXPECT_LT(html.size(), kMost);
  const base::Json data = data_of(html);
  std::set<std::string> axes;
  for (const base::Json& entry : data.at("traffic").as_array()) {
    axes.insert(entry.at("axis").as_string());
    EXPECT_GT(entry.at("calls").as_integer(), 0);
  }
  for (const char* axis : {"data", "tensor", "pipe"}) EXPECT_TRUE(axes.contains(axis)) << axis;
  // Every span is four numbers with a label that exists.
  for (const base::Json& ranks : data.at("classes").as_array()) {
    for (const base::Json& stream : ranks.at("streams").as_array()) {
      const base::Json::Array& spans = stream.at("spans").as_array();
      ASSERT_EQ(spans.size() % 4, 0u);
      for (std::size_t i = 0; i < spans.size(); i += 4) {
        ASSERT_LT(spans[i].as_integer(), static_cast<std::int64_t>(data.at("labels").size()));
        ASSERT_GT(spans[i + 3].as_integer(), 0);
        ASSERT_LE(spans[i + 2].as_integer() + spans[i + 3].as_integer(), data.at("ticks").as_integer() + 1);
      }
    }
  }
}

// As `--schedule` says: a tensor rank sends its rows of what passes between stages, not all of it.
TEST_F(HtmlPage, MessagesAreCountedAsTheyAreSent) {
  const auto messages = [&](const char* scattered) {
    const base::Json data =
        data_of(page({"--set", "strategy.pipe=2", "--set", "strategy.tensor=2", "--set", "model.layers=2", "--set", scattered}));
    for (const base::Json& entry : data.at("traffic").as_array()) {
      if (entry.at("kind").as_string() == "message") return entry.at("bytes").as_integer();
    }
    return std::int64_t{0};
  };
  const std::int64_t whole = messages("strategy.scatter_boundaries=false");
  EXPECT_GT(whole, 0);
  EXPECT_EQ(messages("strategy.scatter_boundaries=true"), whole / 2);
}

// Above what is planned whole, pages of `simulate` and `plan` have the timeline of an outline and each class's memory, and say what they
// lack.
TEST_F(HtmlPage, OfAnOutline) {
  const std::vector<std::string> layout{"--set", "model.layers=32", "--set", "model.heads=8",
                                        "--set", "model.width=64",  "--set", "batch.global=256",
                                        "--set", "batch.micro=1",   "--set", "strategy={\"pipe\": 32, \"tensor\": 4, \"data\": 4}"};
  std::vector<std::string> arguments{"simulate", "run.json", "--cluster", "dgx-h100:64", "--html", "page.html", "--json"};
  arguments.insert(arguments.end(), layout.begin(), layout.end());
  const Ended ended = folder_.plimsoll(arguments);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const base::Json figures = base::parse_json(ended.out, "output");
  ASSERT_EQ(figures.at("simulated").as_string(), "outline");
  const std::string html = folder_.read("page.html");
  EXPECT_LT(html.size(), kMost);
  const base::Json data = data_of(html);
  EXPECT_TRUE(data.at("outlined").as_bool());
  EXPECT_NE(base::write_json(data.at("notes")).find("outline"), std::string::npos);
  const base::Json& classes = data.at("classes");
  EXPECT_GE(classes.size(), 3u);
  EXPECT_EQ(classes.at(0).at("name").as_string(), "pipe 0");
  EXPECT_EQ(classes.at(classes.size() - 1).at("name").as_string(), "pipe 31");
  for (const base::Json& ranks : classes.as_array()) {
    EXPECT_EQ(ranks.at("tiers").at(0).at("arena").as_integer(),
              figures.at("peak_bytes").at(ranks.at("name").as_string()).at("device").as_integer());
    EXPECT_TRUE(ranks.at("rank_text").as_string().starts_with("16 ranks from ")) << ranks.at("rank_text").as_string();
    std::size_t spans = 0;
    for (const base::Json& stream : ranks.at("streams").as_array()) spans += stream.at("spans").size() / 4;
    EXPECT_GT(spans, 100u);
  }
  EXPECT_GT(data.at("traffic").size(), 1u);
  std::set<std::string> works;
  for (const base::Json& work : data.at("label_works").as_array())
    works.insert(data.at("works").at(static_cast<std::size_t>(work.as_integer())).at(1).as_string());
  for (const char* work : {"forward", "backward", "update"}) EXPECT_TRUE(works.contains(work)) << work;
}

TEST_F(HtmlPage, ComparesStrategies) {
  const base::Json data =
      data_of(page({"--cluster", "dgx-h100", "--set", "model.layers=4", "--set", "batch.global=16", "--tokens", "1e9"}));
  const base::Json& table = data.at("tables").at(0);
  EXPECT_GT(table.at("rows").size(), printed_.at("candidates").size());
  for (const base::Json& row : table.at("rows").as_array()) EXPECT_EQ(row.size(), table.at("columns").size());
  EXPECT_EQ(table.at("rows").at(0).at(1).as_double(), printed_.at("candidates").at(0).at("step_seconds").as_double());
  ASSERT_EQ(data.at("tables").size(), 2u) << "and the whole training";
  folder_.write("unmetered.json", R"({"preset": "dgx-h100", "name": "unmetered", "device": {"name": "x", "watts": 0}})");
  const base::Json unmetered =
      data_of(page({"--cluster", "unmetered.json", "--set", "model.layers=4", "--set", "batch.global=16", "--tokens", "1e9"}));
  for (const std::size_t column : {3u, 4u})
    EXPECT_TRUE(unmetered.at("tables").at(1).at("rows").at(0).at(column).is_null()) << "energy that nobody knows is not 0";
}

// What really ran, with two lists of times for every call, on one rank and on several, also where their groups have no stride.
TEST_F(HtmlPage, OfATrainingHasPredictedBesideMeasured) {
  std::filesystem::create_directories(folder_.path("settings/plimsoll"));
  folder_.write("settings/plimsoll/this.json", R"({"name": "this", "devices_per_node": 4,
    "device": {"name": "processor", "memory": "8GiB", "cores": 2, "units": 1, "rates": {"f32": 5e10}, "vector_rate": 1e10,
               "bandwidth": 1e10, "launch": 2e-6},
    "host": {"memory": "8GiB", "bandwidth": 1e10},
    "links": [{"name": "memory", "joins": "inside", "bandwidth": 4e9, "latency": 2e-5},
              {"name": "host", "joins": "host", "bandwidth": 4e9, "latency": 5e-6}]})");
  const std::string own_degrees = R"(strategy.stages=[{"blocks":1,"data":2},1])";
  for (const std::vector<std::string>& ranks :
       {std::vector<std::string>{},
        {"--ranks", "4", "--set", "strategy.pipe=2", "--set", "strategy.data=2", "--set", "model.layers=2"},
        {"--set", own_degrees, "--set", "model.layers=2", "--set", "model.tied=false", "--set", "batch.micro=1"}}) {
    std::vector<std::string> arguments{"train", "run.json", "--fresh", "--html", "page.html"};
    arguments.insert(arguments.end(), ranks.begin(), ranks.end());
    const Ended ended = folder_.plimsoll(arguments, {"XDG_CONFIG_HOME=" + folder_.path("settings").string()});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    const std::string html = folder_.read("page.html");
    EXPECT_EQ(html, folder_.read("out/page.html"));
    const base::Json data = data_of(html);
    EXPECT_EQ(data.at("times_name").as_string(), "measured");
    EXPECT_EQ(data.at("classes").size(), ranks.empty() ? 1u : ranks.front() == "--ranks" ? 2u : 3u);
    for (const base::Json& of_class : data.at("classes").as_array()) {
      for (const base::Json& stream : of_class.at("streams").as_array())
        EXPECT_EQ(stream.at("spans").size(), 2 * stream.at("beside").size());
    }
    const base::Json& table = data.at("tables").at(0);
    EXPECT_EQ(table.at("rows").at(0).at(0).as_string(), "step");
    std::set<std::string> works;
    for (const base::Json& row : table.at("rows").as_array()) {
      works.insert(row.at(0).as_string());
      EXPECT_GT(row.at(1).as_double(), 0.0);
    }
    for (const char* work : {"forward", "backward", "update"})
      EXPECT_TRUE(works.contains(ranks.empty() ? work : fmt::format("pipe 1: {}", work))) << work;
  }
}

// What a machine that was not measured is guessed to do is not shown, and the figures are those of the parts below.
TEST_F(HtmlPage, OfATrainingWithoutCalibration) {
  const Ended ended = folder_.plimsoll({"train", "run.json", "--fresh"}, {"XDG_CONFIG_HOME=" + folder_.path("nowhere").string()});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const base::Json data = data_of(folder_.read("out/page.html"));
  EXPECT_TRUE(data.at("beside_name").as_string().empty());
  EXPECT_EQ(data.at("figures").at(0).at(0).as_string(), "step, median");
  std::set<std::string> figures;
  for (const base::Json& figure : data.at("figures").as_array()) figures.insert(figure.at(0).as_string());
  EXPECT_TRUE(figures.contains("prediction"));
  EXPECT_FALSE(figures.contains("step, predicted"));
  const base::Json& table = data.at("tables").at(0);
  EXPECT_EQ(table.at("columns").size(), 2u);
  double parts = 0.0;
  for (std::size_t row = 1; row < table.at("rows").size(); ++row) parts += table.at("rows").at(row).at(1).as_double();
  EXPECT_LE(parts, 1.001 * table.at("rows").at(0).at(1).as_double()) << "one stream: its calls follow each other";
  // The timeline ends where the last call does, and the curve has a point for every step.
  std::int64_t end = 0;
  for (const base::Json& stream : data.at("classes").at(0).at("streams").as_array()) {
    const base::Json::Array& spans = stream.at("spans").as_array();
    for (std::size_t i = 0; i < spans.size(); i += 4) end = std::max(end, spans[i + 2].as_integer() + spans[i + 3].as_integer());
  }
  EXPECT_NEAR(static_cast<double>(end), data.at("ticks").as_double(), 2.0);
  const base::Json& lines = data.at("curves").at(0).at("lines");
  EXPECT_EQ(lines.at(0).at("points").size(), 6u);
  EXPECT_EQ(lines.at(1).at("points").size(), 2u) << "evaluated every three steps";
}

class InABrowser : public HtmlPage, public testing::WithParamInterface<std::vector<std::string>> {};

// So many classes of ranks that an outline is simulated.
const std::vector<std::string> kOutlined{
    "--cluster", "dgx-h100:64",      "--set", "model.layers=32",  "--set", "model.heads=8",     "--set",    "model.width=64",
    "--set",     "batch.global=256", "--set", "strategy.pipe=32", "--set", "strategy.tensor=4", "--tokens", "1e9"};

// A whole plan, and an outline of one.
INSTANTIATE_TEST_SUITE_P(Pages, InABrowser, testing::Values(kManyRanks, kOutlined));

TEST_P(InABrowser, IsShownWithoutComplaint) {
  const std::filesystem::path browser = find_program("chromium");
  if (browser.empty()) GTEST_SKIP() << "no chromium in PATH; ./dev setup installs it";
  page(GetParam());
  Child child({browser.string(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir=profile",
               "--enable-logging=stderr", "--virtual-time-budget=2000", "--dump-dom", "file://" + folder_.path("page.html").string()},
              folder_.path());
  const Ended ended = child.wait();
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.err.find("CONSOLE"), std::string::npos) << ended.err;
  // The scripts ran to their end and noted after how many milliseconds: a second at most on a machine that does nothing else.
  const std::size_t at = ended.out.find("data-ready=\"");
  ASSERT_NE(at, std::string::npos) << ended.out.substr(0, 500);
  RecordProperty("milliseconds", ended.out.substr(at + 12, ended.out.find('"', at + 12) - at - 12));
  // Only what the scripts made counts: their own text is in the page too.
  const bool whole = GetParam() == kManyRanks;
  EXPECT_NE(ended.out.find("<section id=\"timeline\""), std::string::npos);
  for (const char* part : {"<h3 id=\"peak-title\">On top at the peak", "<canvas id=\"water\""})
    EXPECT_EQ(ended.out.find(part) != std::string::npos, whole) << part;
  for (const char* part : {"<h2>The whole training</h2>", "<h2>Memory</h2>", "<td>pipe 31: "})
    EXPECT_EQ(ended.out.find(part) != std::string::npos, !whole) << part;
}

}  // namespace
}  // namespace plimsoll::tests
