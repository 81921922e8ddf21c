#include "report/gantt_svg.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace plimsoll::report {

namespace {

using strategy::schedules::Work;

// In pixels.
constexpr double kWidth = 1200.0;
constexpr double kMargin = 24.0;
constexpr double kLabel = 56.0;  // "rank 12"
constexpr double kHeld = 150.0;  // the bars at the right, with their numbers
constexpr double kGap = 26.0;    // between chart and bars
constexpr double kTitle = 50.0;  // of a panel
constexpr double kBelow = 36.0;  // below a panel
constexpr double kLegend = 34.0;
constexpr double kDigit = 7.0;  // of a label in a piece
constexpr double kThin = 2.0;   // pieces narrower than this become strokes

struct Colors {
  std::string_view dark;
  std::string_view light;
};

Colors colors_of(Work work) {
  switch (work) {
    case Work::forward: return {"#2f6db5", "#8fbfea"};
    case Work::backward: return {"#2e8b57", "#93d1ab"};
    case Work::backward_input: return {"#1f8a8c", "#86cfd0"};
    case Work::backward_weight: return {"#7d57a8", "#c7aee3"};
    case Work::recompute: return {"#d98b1f", "#f3cd8f"};
    case Work::update: break;
  }
  return {"#888888", "#bbbbbb"};
}

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    }
  }
  return out;
}

class Picture {
 public:
  explicit Picture(std::span<const Gantt> gantts) : gantts_(gantts) {
    std::size_t ranks = 1;
    for (const Gantt& gantt : gantts) ranks = std::max(ranks, gantt.schedule.ranks.size());
    row_ = std::clamp(640.0 / static_cast<double>(ranks), 7.0, 26.0);
    chart_ = kWidth - 2.0 * kMargin - kLabel - kGap - kHeld;
    scale_ = chart_ / std::max(longest(gantts), 1e-9);
    most_ = std::max(most_held(gantts), 1.0);
  }

  std::string draw() {
    double top = kMargin;
    for (const Gantt& gantt : gantts_) top = panel(gantt, top);
    const double height = legend(top) + kLegend;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"12\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{2}</svg>\n",
        kWidth, height, body_);
  }

 private:
  double left() const { return kMargin + kLabel; }

  void text(double x, double y, std::string_view words, std::string_view attributes = "fill=\"#222222\"") {
    body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, attributes, escaped(words));
  }
  void rect(double x, double y, double width, double height, std::string_view attributes) {
    body_ += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" {}/>\n", x, y, width, height, attributes);
  }

  double panel(const Gantt& gantt, double top);
  void pieces(const Gantt& gantt, std::size_t rank, double y);
  void piece(const Bar& bar, double y);
  void held_bar(const Gantt& gantt, std::size_t rank, double y);
  void update_marks(const Gantt& gantt, std::size_t rank, double y);
  double legend(double top);

  std::span<const Gantt> gantts_;
  double row_ = 0.0;
  double chart_ = 0.0;
  double scale_ = 0.0;  // pixels per unit of time
  double most_ = 0.0;
  std::string body_;
};

double Picture::panel(const Gantt& gantt, double top) {
  const std::size_t ranks = gantt.schedule.ranks.size();
  const double height = row_ * static_cast<double>(ranks);
  text(kMargin, top + 14.0, title(gantt), "font-size=\"16\" font-weight=\"bold\" fill=\"#111111\"");
  text(kMargin, top + 34.0, gantt.about, "fill=\"#555555\"");
  const double y = top + kTitle;
  text(left() + chart_ + kGap, top + 34.0, "held at most", "fill=\"#555555\"");
  rect(left(), y, gantt.timeline.makespan * scale_, height, "fill=\"#eeeeee\"");
  const std::size_t every = row_ < 12.0 ? 8 : 1;  // labels would overlap
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const double row_top = y + row_ * static_cast<double>(rank);
    if (rank % every == 0) {
      text(left() - 8.0, row_top + row_ / 2.0 + 4.0, fmt::format("rank {}", rank), "text-anchor=\"end\" fill=\"#222222\"");
    }
    pieces(gantt, rank, row_top);
    update_marks(gantt, rank, row_top);
    held_bar(gantt, rank, row_top);
  }
  text(left(), y + height + 16.0, summary(gantt));
  return y + height + kBelow;
}

// Narrow pieces become strokes of one path for each colour, neighbours of the same colour one stroke: a large schedule stays a
// file that a browser opens.
void Picture::pieces(const Gantt& gantt, std::size_t rank, double y) {
  const std::vector<Bar> bars = bars_of(gantt, rank);
  std::map<std::string_view, std::string> strokes;
  for (std::size_t i = 0; i < bars.size();) {
    Bar bar = bars[i];
    std::size_t next = i + 1;
    const bool thin = (bar.end - bar.start) * scale_ < kThin;
    while (thin && next < bars.size() && bars[next].work == bar.work && bars[next].light == bar.light &&
           (bars[next].start - bar.end) * scale_ < 0.1) {
      bar.end = bars[next++].end;
    }
    const Colors colors = colors_of(bar.work);
    if (thin) {
      strokes[bar.light ? colors.light : colors.dark] +=
          fmt::format("M{:.2f} {:.1f}h{:.2f}", left() + bar.start * scale_, y + row_ / 2.0, (bar.end - bar.start) * scale_);
    } else {
      piece(bar, y);
    }
    i = next;
  }
  for (const auto& [color, path] : strokes)
    body_ += fmt::format("<path stroke=\"{}\" stroke-width=\"{:.1f}\" d=\"{}\"/>\n", color, row_ - 2.0, path);
}

void Picture::piece(const Bar& bar, double y) {
  const Colors colors = colors_of(bar.work);
  const double x = left() + bar.start * scale_;
  const double width = (bar.end - bar.start) * scale_;
  const std::string fill = fmt::format("fill=\"{}\"", bar.light ? colors.light : colors.dark);
  const double edge = row_ < 12.0 ? 0.0 : 0.5;
  rect(x + edge, y + 1.0, std::max(width - 2.0 * edge, 0.3), row_ - 2.0, fill);
  const std::string label = fmt::format("{}", bar.micro_batch);
  const double room = (width - 2.0) / static_cast<double>(label.size());
  if (row_ < 14.0 || room < kDigit * 0.75) return;
  text(x + width / 2.0, y + row_ / 2.0 + 4.0, label,
       fmt::format("text-anchor=\"middle\" font-size=\"{}\" fill=\"{}\"", room < kDigit ? 8 : 11, bar.light ? "#1a1a1a" : "#ffffff"));
}

void Picture::held_bar(const Gantt& gantt, std::size_t rank, double y) {
  constexpr double kNumber = 34.0;
  const double x = left() + chart_ + kGap;
  const double count = held(gantt, rank);
  rect(x, y + row_ * 0.2, (kHeld - kNumber) * count / most_, row_ * 0.6, "fill=\"#c9a227\"");
  if (row_ >= 12.0) text(x + (kHeld - kNumber) * count / most_ + 6.0, y + row_ / 2.0 + 4.0, plain(count));
}

void Picture::update_marks(const Gantt& gantt, std::size_t rank, double y) {
  for (double time : updates_of(gantt, rank)) rect(left() + time * scale_ - 1.0, y, 2.0, row_, "fill=\"#c0392b\"");
}

// As many lines as it takes; gives the top of the last one.
double Picture::legend(double top) {
  double x = left();
  const auto entry = [&](std::string_view fill, std::string_view name) {
    const double width = 44.0 + kDigit * static_cast<double>(name.size());
    if (x + width > kWidth - kMargin && x > left()) {
      x = left();
      top += 22.0;
    }
    rect(x, top + 2.0, 14.0, 14.0, fmt::format("fill=\"{}\"", fill));
    text(x + 20.0, top + 13.0, name);
    x += width;
  };
  const bool updates = std::any_of(gantts_.begin(), gantts_.end(), [](const Gantt& gantt) { return gantt.schedule.shape.batches > 1; });
  for (const LegendEntry& one : legend_of(gantts_)) entry(colors_of(one.work).dark, one.name);
  if (updates) entry("#c0392b", "update of the weights");
  entry("#eeeeee", "waiting");
  entry("#c9a227", "micro-batches held");
  return top;
}

}  // namespace

std::string gantt_svg(std::span<const Gantt> gantts) { return Picture(gantts).draw(); }

}  // namespace plimsoll::report
