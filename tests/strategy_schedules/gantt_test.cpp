// The drawings: what a reader sees, to the letter for a small one, and that large ones stay readable and small.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "report/gantt_svg.h"
#include "report/gantt_table.h"
#include "report/gantt_text.h"
#include "strategy/schedules/table.h"

namespace plimsoll::report {
namespace {

using strategy::schedules::build;
using strategy::schedules::Shape;

std::vector<Gantt> drawings(const std::vector<std::string>& names, Shape shape) {
  std::vector<Gantt> gantts;
  for (const std::string& name : names) {
    shape.chunks = name == "interleaved" ? 2 : 1;
    gantts.push_back(gantt_of(build(name, shape), "about"));
  }
  return gantts;
}

// Columns on a terminal of the widest line: continuation bytes and escape codes take none.
std::size_t widest(std::string_view text) {
  std::size_t most = 0;
  std::size_t now = 0;
  bool escape = false;
  for (char c : text) {
    if (c == '\n') {
      now = 0;
    } else if (c == '\x1b') {
      escape = true;
    } else if (escape) {
      escape = c != 'm';
    } else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) {
      most = std::max(most, ++now);
    }
  }
  return most;
}

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

TEST(GanttText, SmallDrawingsToTheLetter) {
  EXPECT_EQ(gantt_text(drawings({"gpipe", "1f1b"}, {.ranks = 2, .micro_batches = 3}), {.color = false, .width = 50}),
            "gpipe: about\n"
            "rank 0 │0>1>2>······2<<<1<<<0<<<    3 ▆▆▆\n"
            "rank 1 │··0>1>2>2<<<1<<<0<<<····    3 ▆▆▆\n"
            "       └ bubble 25.0%, a rank holds at most 3\n"
            "         micro-batches, 6 messages a step\n"
            "\n"
            "1f1b: about\n"
            "rank 0 │0>1>····0<<<2>1<<<··2<<<    2 ▆▆\n"
            "rank 1 │··0>0<<<1>1<<<2>2<<<····    1 ▆\n"
            "       └ bubble 25.0%, a rank holds at most 2\n"
            "         micro-batches, 6 messages a step\n"
            "\n"
            "0> forward   0< backward   ·· waiting\n"
            "numbers are micro-batches; ▆ how many a rank holds at most\n");
}

TEST(GanttText, JoinedPiecesAreDrawnOneAfterTheOther) {
  const std::string text = gantt_text(drawings({"dualpipe"}, {.ranks = 2, .micro_batches = 4}), {.color = false, .width = 50});
  EXPECT_NE(text.find("rank 0 │0>2>1>2<<<3>0<<<3<<<1i1w "), std::string::npos) << text;
}

TEST(GanttText, ColourOnlyWhereItIsAskedFor) {
  const std::vector<Gantt> gantts = drawings({"zb-h1"}, {.ranks = 4, .micro_batches = 8});
  EXPECT_EQ(count(gantt_text(gantts, {.color = false}), "\x1b"), 0U);
  const std::string text = gantt_text(gantts, {.color = true});
  EXPECT_GT(count(text, "\x1b[48;5;25;38;5;231m"), 8U);
  EXPECT_EQ(count(text, "\x1b["), 2 * count(text, "\x1b[0m")) << "every colour ends";
}

TEST(GanttText, KeepsToItsWidth) {
  for (int width : {72, 100, 120}) {
    for (const auto& [p, m] : {std::pair{1, 1}, {2, 4}, {4, 8}, {8, 64}, {16, 512}}) {
      for (bool color : {false, true}) {
        const std::string text = gantt_text(drawings({"gpipe", "1f1b", "interleaved", "varuna", "zb-h1"}, {.ranks = p, .micro_batches = m}),
                                            {.color = color, .width = width});
        EXPECT_LE(widest(text), static_cast<std::size_t>(width)) << text;
      }
    }
  }
}

TEST(GanttTable, FitsAScreenAndSaysWhyNot) {
  std::vector<GanttRow> rows;
  for (const strategy::schedules::Kind& kind : strategy::schedules::kinds()) {
    const Shape shape{.ranks = 8, .micro_batches = 16, .chunks = kind.chunked ? 2 : 1};
    rows.push_back({.name = std::string(kind.name), .reason = "", .gantt = gantt_of(build(kind.name, shape), std::string(kind.about))});
  }
  rows.push_back({.name = "other", .drawn = true, .reason = "found no ranks", .gantt = {}});
  const std::string text = gantt_table(rows, {.width = 120});
  EXPECT_LE(widest(text), 120U) << text;
  EXPECT_NE(text.find("weights one batch old"), std::string::npos) << text;
  EXPECT_NE(text.find("  1f1b                     69   30.4%  8 ... 1"), std::string::npos) << text;
  EXPECT_NE(text.find("> other                 found no ranks\n"), std::string::npos) << text;
  rows.back().reason = "found 6 micro-batches, expected a multiple of the 4 pipeline ranks";
  const std::string narrow = gantt_table(rows, {.width = 80});
  EXPECT_LE(widest(narrow), 80U) << narrow;
  EXPECT_EQ(narrow.find("weights one batch old"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("a multiple of the 4\n                        pipeline ranks\n"), std::string::npos) << narrow;
}

TEST(GanttText, SaysWhereItCannotShowEveryPiece) {
  constexpr std::string_view kWords = "more pieces than columns";
  EXPECT_EQ(gantt_text(drawings({"1f1b"}, {.ranks = 4, .micro_batches = 8}), {.width = 110}).find(kWords), std::string::npos);
  EXPECT_NE(gantt_text(drawings({"1f1b"}, {.ranks = 16, .micro_batches = 64}), {.width = 110}).find(kWords), std::string::npos);
}

TEST(GanttSvg, EveryPieceOnce) {
  const std::string svg = gantt_svg(drawings({"1f1b"}, {.ranks = 4, .micro_batches = 8}));
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg.substr(0, 80);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_EQ(count(svg, "fill=\"#2f6db5\"/>"), 4U * 8U + 1U) << "and the legend";
  EXPECT_EQ(count(svg, "fill=\"#2e8b57\"/>"), 4U * 8U + 1U);
  EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
}

TEST(GanttSvg, MarksUpdatesBetweenBatches) {
  const Shape shape{.ranks = 2, .micro_batches = 2, .batches = 3};
  const std::vector<Gantt> gantts{gantt_of(build("2bw", shape), "")};
  EXPECT_EQ(count(gantt_svg(gantts), "fill=\"#c0392b\"/>"), 2U * 3U + 1U);
}

TEST(GanttSvg, NamesAreEscaped) {
  std::vector<Gantt> gantts = drawings({"1f1b"}, {.ranks = 1, .micro_batches = 1});
  gantts[0].schedule.name = "<a>&\"b\x01.csv";
  EXPECT_NE(gantt_svg(gantts).find(">&lt;a&gt;&amp;&quot;b?.csv</text>"), std::string::npos);
}

TEST(GanttSvg, LargeSchedulesAreSmallFiles) {
  const std::string svg = gantt_svg({drawings({"gpipe", "interleaved"}, {.ranks = 64, .micro_batches = 512})});
  EXPECT_LT(svg.size(), 8U << 20);
}

}  // namespace
}  // namespace plimsoll::report
