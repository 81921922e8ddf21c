// What the page shows, as JSON. Spans are flat lists of numbers (label, micro-batch, begin, length), because there are many.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>

#include <fmt/format.h>

#include "base/error.h"
#include "plan/traffic.h"
#include "plan/waterline.h"
#include "report/names.h"
#include "report/page.h"

namespace plimsoll::report {

namespace {

using base::Bytes;
using base::Json;

constexpr double kTicks = 1e6;             // in a step, where there are times
constexpr std::size_t kColumns = 600;      // of a waterline; fewer where there are many classes
constexpr std::size_t kAllColumns = 9600;  // of all of them
constexpr std::size_t kFewestColumns = 120;
constexpr std::int64_t kQuanta = 4096;  // a waterline's heights are whole numbers of the arena's 4096th part
constexpr std::size_t kTop = 12;        // tensors listed at the peak

// Colour and name of a piece of work.
constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kPageWorks{{{"forward", "forward"},
                                                                                    {"backward", "backward"},
                                                                                    {"weights", "weight gradients"},
                                                                                    {"recompute", "recompute"},
                                                                                    {"update", "update"},
                                                                                    {"communication", "collective"},
                                                                                    {"send", "send"},
                                                                                    {"receive", "receive"},
                                                                                    {"copy", "copy"},
                                                                                    {"other", "other"}}};
enum class PageWork : std::uint8_t { forward, backward, weights, recompute, update, communication, send, receive, copy, other };

PageWork work_of(plan::StreamKind stream, std::string_view label) {
  switch (stream) {
    case plan::StreamKind::communication: return PageWork::communication;
    case plan::StreamKind::send: return PageWork::send;
    case plan::StreamKind::receive: return PageWork::receive;
    case plan::StreamKind::host_in:
    case plan::StreamKind::host_out:
    case plan::StreamKind::disk_in:
    case plan::StreamKind::disk_out: return PageWork::copy;
    case plan::StreamKind::compute:
    case plan::StreamKind::host_compute: break;
  }
  constexpr std::array<std::pair<std::string_view, PageWork>, 5> kEndings{{{".forward", PageWork::forward},
                                                                           {".backward", PageWork::backward},
                                                                           {".backward-weight", PageWork::weights},
                                                                           {".recompute", PageWork::recompute},
                                                                           {".update", PageWork::update}}};
  for (const auto& [ending, work] : kEndings) {
    if (label.ends_with(ending)) return work;
  }
  return PageWork::other;
}

// Labels by number, so that spans are numbers alone.
class Labels {
 public:
  std::int64_t of(plan::StreamKind stream, const std::string& label) {
    const PageWork work = work_of(stream, label);
    const auto [found, added] = numbers_.try_emplace({label, work}, static_cast<std::int64_t>(numbers_.size()));
    if (added) {
      names_.emplace_back(label);
      works_.emplace_back(static_cast<std::int64_t>(work));
    }
    return found->second;
  }
  Json names() const { return Json(names_); }
  Json works() const { return Json(works_); }

 private:
  std::map<std::pair<std::string, PageWork>, std::int64_t> numbers_;
  Json::Array names_;
  Json::Array works_;
};

// "ranks 0-3, 8-11"
std::string rank_text(const std::vector<std::int32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += first == 0 ? "" : ", ";
    text += last == first ? fmt::format("{}", ranks[first]) : fmt::format("{}-{}", ranks[first], ranks[last]);
    first = last + 1;
  }
  return text;
}

// An outline names the first tensor rank of each data place; those of a place of the pipe axis lie side by side.
std::string outlined_ranks(const plan::Plan& plan, const plan::RankClass& rank_class) {
  const std::int64_t count = static_cast<std::int64_t>(rank_class.ranks.size()) * plan.mesh.extent(ops::Axis::tensor);
  return fmt::format("{} rank{} from {} on", count, count == 1 ? "" : "s", rank_class.ranks.front());
}

// One class's program with the time of each moment, in ticks.
struct Sheet {
  const plan::RankClass& rank_class;
  std::int32_t program = 0;
  std::vector<std::int64_t> begin;  // by moment
};

class Writer {
 public:
  explicit Writer(const Page& page) : page_(page) {
    const std::size_t classes = page.plan.classes.size();
    PLIMSOLL_CHECK(page.times.empty() || page.times.size() == classes, "{} classes, but times of {}", classes, page.times.size());
    PLIMSOLL_CHECK(page.beside.empty() || page.beside.size() == page.times.size(), "times of {} classes beside {}", page.beside.size(),
                   page.times.size());
    columns_ = std::clamp(kAllColumns / std::max<std::size_t>(1, classes), kFewestColumns, kColumns);
    // Either list of times fills the width of the timeline when it is shown.
    const double end = end_of(page.times);
    const double beside = end_of(page.beside);
    seconds_per_tick_ = page.times.empty() ? 0.0 : std::max({end, beside, 1e-9}) / kTicks;
    ticks_ = page.times.empty() ? 1 : ticks_until(end);
    ticks_beside_ = page.beside.empty() ? ticks_ : ticks_until(beside);
  }

  Json write();

 private:
  Json class_json(std::size_t index);
  Json stream_json(const plan::Stream& stream, const std::vector<CallTime>* times, const std::vector<CallTime>* beside, Sheet& sheet);
  static double end_of(const std::vector<ClassTimes>& times) {
    double end = 0.0;
    for (const ClassTimes& streams : times) {
      for (const std::vector<CallTime>& calls : streams) {
        for (const CallTime& call : calls) end = std::max(end, call.end);
      }
    }
    return end;
  }
  std::int64_t ticks_until(double end) const { return std::max<std::int64_t>(1, std::llround(end / seconds_per_tick_)); }
  Json curves_json() const;
  std::pair<std::int64_t, std::int64_t> ticks_of(const CallTime& time) const;
  Json tier_json(const Sheet& sheet, plan::Tier tier) const;
  Json peak_json(const Sheet& sheet, plan::Tier tier, const plan::Waterline& line) const;
  Json tables_json() const;
  std::int64_t fullest_class() const;

  const Page& page_;
  Labels labels_;
  std::size_t columns_ = kColumns;
  double seconds_per_tick_ = 0.0;
  std::int64_t ticks_ = 1;
  std::int64_t ticks_beside_ = 1;
};

// Begin and length.
std::pair<std::int64_t, std::int64_t> Writer::ticks_of(const CallTime& time) const {
  const std::int64_t begin = std::llround(time.begin / seconds_per_tick_);
  return {begin, std::max<std::int64_t>(1, std::llround(time.end / seconds_per_tick_) - begin)};
}

Json Writer::stream_json(const plan::Stream& stream, const std::vector<CallTime>* times, const std::vector<CallTime>* beside,
                         Sheet& sheet) {
  Json::Array spans;
  spans.reserve(4 * stream.calls.size());
  for (std::size_t index = 0; index < stream.calls.size(); ++index) {
    const plan::Call& call = stream.calls[index];
    std::int64_t begin = call.moment;
    std::int64_t length = 1;
    if (times != nullptr) std::tie(begin, length) = ticks_of(times->at(index));
    sheet.begin[static_cast<std::size_t>(call.moment)] = begin;
    for (const std::int64_t number : {labels_.of(stream.kind, call.label.text()), std::int64_t{call.micro_batch}, begin, length})
      spans.emplace_back(number);
  }
  Json json = Json::object({{"kind", plan::name_of(stream.kind)}, {"spans", Json(std::move(spans))}});
  if (beside == nullptr) return json;
  Json::Array others;
  for (std::size_t index = 0; index < stream.calls.size(); ++index) {
    const auto [begin, length] = ticks_of(beside->at(index));
    others.emplace_back(begin);
    others.emplace_back(length);
  }
  json.set("beside", Json(std::move(others)));
  return json;
}

// One name for a tensor's micro-batches, and for what all layers have of it: "blocks.*.ffn.up".
std::string group_name(std::string_view buffer) {
  std::string name(buffer.substr(0, buffer.find('@')));
  constexpr std::string_view kLayers = "blocks.";
  const std::size_t at = name.find(kLayers);
  if (at == std::string::npos) return name;
  const std::size_t begin = at + kLayers.size();
  const std::size_t end = std::min(name.find_first_not_of("0123456789", begin), name.size());
  if (end > begin) name.replace(begin, end - begin, "*");
  return name;
}

// What is alive at the peak, largest first.
Json Writer::peak_json(const Sheet& sheet, plan::Tier tier, const plan::Waterline& line) const {
  struct Entry {
    plan::BufferKind kind{};
    std::int64_t bytes = 0;
    std::int64_t count = 0;
  };
  std::map<std::string, Entry, std::less<>> entries;
  for (const plan::Buffer& buffer : sheet.rank_class.buffers) {
    const bool alive =
        buffer.persistent() || (buffer.program == sheet.program && buffer.first <= line.peak_call && line.peak_call <= buffer.last);
    if (buffer.tier != tier || !alive) continue;
    Entry& entry = entries[group_name(buffer.name.text())];
    entry.kind = buffer.kind;
    entry.bytes += base::round_up(buffer.bytes, plan::kAlignment).count;
    ++entry.count;
  }
  std::vector<std::pair<std::string, Entry>> sorted(entries.begin(), entries.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  Json top = Json::array();
  for (std::size_t index = 0; index < std::min(kTop, sorted.size()); ++index) {
    const auto& [name, entry] = sorted[index];
    const std::string text = entry.count > 1 ? fmt::format("{} x {}", name, entry.count) : name;
    top.push(Json::array({Json(text), Json(plural_of(entry.kind)), Json(entry.bytes)}));
  }
  const plan::Program& program = sheet.rank_class.programs[static_cast<std::size_t>(sheet.program)];
  return Json::object({{"bytes", line.peak.count},
                       {"tick", sheet.begin[static_cast<std::size_t>(line.peak_call)]},
                       {"label", label_at(program, line.peak_call)},
                       {"top", std::move(top)}});
}

// The heights of every kind's layer at the moments of the program that are drawn: in each column, the fullest.
struct Layers {
  std::vector<plan::BufferKind> kinds;
  std::vector<std::vector<std::int64_t>> bytes;  // by kind and column
};

Layers layers_of(const Sheet& sheet, plan::Tier tier, const std::vector<std::size_t>& moments) {
  std::map<plan::BufferKind, std::vector<std::int64_t>> changes;
  const std::size_t count = sheet.begin.size();
  for (const plan::Buffer& buffer : sheet.rank_class.buffers) {
    if (buffer.tier != tier || (!buffer.persistent() && buffer.program != sheet.program)) continue;
    std::vector<std::int64_t>& change = changes.try_emplace(buffer.kind, count + 1, 0).first->second;
    const std::int64_t bytes = base::round_up(buffer.bytes, plan::kAlignment).count;
    change[buffer.persistent() ? 0 : static_cast<std::size_t>(buffer.first)] += bytes;
    change[buffer.persistent() ? count : static_cast<std::size_t>(buffer.last) + 1] -= bytes;
  }
  Layers layers;
  for (auto& [kind, change] : changes) {
    for (std::size_t moment = 1; moment < change.size(); ++moment) change[moment] += change[moment - 1];
    layers.kinds.push_back(kind);
    std::vector<std::int64_t>& heights = layers.bytes.emplace_back();
    for (std::size_t moment : moments) heights.push_back(change[moment]);
  }
  return layers;
}

// Of each column's share of the moments, the fullest.
std::vector<std::size_t> drawn_moments(const std::vector<Bytes>& at_call, std::size_t columns) {
  columns = std::min(columns, at_call.size());
  std::vector<std::size_t> moments;
  for (std::size_t column = 0; column < columns; ++column) {
    const auto first = at_call.begin() + static_cast<std::ptrdiff_t>(column * at_call.size() / columns);
    const auto last = at_call.begin() + static_cast<std::ptrdiff_t>((column + 1) * at_call.size() / columns);
    moments.push_back(static_cast<std::size_t>(std::max_element(first, last) - at_call.begin()));
  }
  return moments;
}

Json Writer::tier_json(const Sheet& sheet, plan::Tier tier) const {
  if (page_.outlined) {
    const bool device = tier == plan::Tier::device;
    return Json::object({{"name", plan::name_of(tier)},
                         {"arena", sheet.rank_class.arena[static_cast<std::size_t>(tier)].count},
                         {"capacity", device ? page_.capacity.count : 0},
                         {"reserve", device ? page_.reserve.count : 0}});
  }
  const plan::Waterline line = plan::waterline(sheet.rank_class, sheet.program, tier);
  const std::int64_t arena = sheet.rank_class.arena[static_cast<std::size_t>(tier)].count;
  const std::int64_t quantum = std::max<std::int64_t>(1, line.peak.count / kQuanta);
  const std::vector<std::size_t> moments = drawn_moments(line.at_call, columns_);
  const Layers layers = layers_of(sheet, tier, moments);
  Json at = Json::array();
  // Streams start calls in another order than they are counted in; a waterline only goes forward.
  std::int64_t latest = 0;
  for (std::size_t moment : moments) at.push(Json(latest = std::max(latest, sheet.begin[moment])));
  Json kinds = Json::array();
  Json bytes = Json::array();
  for (std::size_t kind = 0; kind < layers.kinds.size(); ++kind) {
    const std::vector<std::int64_t>& heights = layers.bytes[kind];
    if (std::all_of(heights.begin(), heights.end(), [&](std::int64_t height) { return height < quantum; })) continue;
    kinds.push(Json(plural_of(layers.kinds[kind])));
    Json series = Json::array();
    for (std::int64_t height : heights) series.push(Json(height / quantum));
    bytes.push(std::move(series));
  }
  const bool device = tier == plan::Tier::device;
  return Json::object({{"name", plan::name_of(tier)},
                       {"arena", arena},
                       {"capacity", device ? page_.capacity.count : 0},
                       {"reserve", device ? page_.reserve.count : 0},
                       {"quantum", quantum},
                       {"at", std::move(at)},
                       {"kinds", std::move(kinds)},
                       {"bytes", std::move(bytes)},
                       {"peak", peak_json(sheet, tier, line)}});
}

Json Writer::class_json(std::size_t index) {
  const plan::RankClass& rank_class = page_.plan.classes[index];
  const plan::Program* program = plan::find_program(rank_class, page_.program);
  PLIMSOLL_CHECK(program != nullptr, "the plan has no program {}", page_.program);
  const auto moments = static_cast<std::size_t>(plan::moments_of(*program));
  Sheet sheet{.rank_class = rank_class,
              .program = static_cast<std::int32_t>(program - rank_class.programs.data()),
              .begin = std::vector<std::int64_t>(moments, 0)};
  Json streams = Json::array();
  for (std::size_t stream = 0; stream < program->streams.size(); ++stream) {
    if (program->streams[stream].calls.empty()) continue;
    const auto of_stream = [&](const std::vector<ClassTimes>& times) { return times.empty() ? nullptr : &times[index].at(stream); };
    streams.push(stream_json(program->streams[stream], of_stream(page_.times), of_stream(page_.beside), sheet));
  }
  if (page_.times.empty()) ticks_ = std::max(ticks_, static_cast<std::int64_t>(moments));
  Json tiers = Json::array();
  for (const plan::Tier tier : {plan::Tier::device, plan::Tier::host, plan::Tier::disk}) {
    if (tier == plan::Tier::device || rank_class.arena[static_cast<std::size_t>(tier)].count > 0) tiers.push(tier_json(sheet, tier));
  }
  return Json::object({{"name", rank_class.name},
                       {"rank_text", page_.outlined ? outlined_ranks(page_.plan, rank_class) : rank_text(rank_class.ranks)},
                       {"streams", std::move(streams)},
                       {"tiers", std::move(tiers)}});
}

std::string_view name_of(PageTable::Format format) {
  constexpr std::array<std::string_view, 5> kNames{"text", "seconds", "count", "percent", "bytes"};
  return kNames.at(static_cast<std::size_t>(format));
}

Json Writer::tables_json() const {
  Json tables = Json::array();
  for (const PageTable& table : page_.tables) {
    Json columns = Json::array();
    for (const PageTable::Column& column : table.columns)
      columns.push(Json::object({{"title", column.title}, {"format", name_of(column.format)}}));
    Json rows = Json::array();
    for (const Json::Array& row : table.rows) rows.push(Json(row));
    Json refused = Json::array();
    for (std::int32_t row : table.refused) refused.push(Json(row));
    tables.push(Json::object({{"title", table.title},
                              {"about", table.about},
                              {"columns", std::move(columns)},
                              {"rows", std::move(rows)},
                              {"chosen", table.chosen},
                              {"refused", std::move(refused)}}));
  }
  return tables;
}

Json Writer::curves_json() const {
  Json curves = Json::array();
  for (const PageCurve& curve : page_.curves) {
    Json lines = Json::array();
    for (const PageCurve::Line& line : curve.lines) {
      Json points = Json::array();
      for (const auto& [at, value] : line.points) points.push(Json::array({Json(at), Json(value)}));
      lines.push(Json::object({{"name", line.name}, {"points", std::move(points)}}));
    }
    curves.push(Json::object({{"title", curve.title}, {"lines", std::move(lines)}}));
  }
  return curves;
}

// Of the class whose ranks send most.
Json traffic_json(const Page& page) {
  std::vector<plan::Traffic> most;
  std::int64_t most_bytes = -1;
  for (const plan::RankClass& rank_class : page.plan.classes) {
    const plan::Program* program = plan::find_program(rank_class, page.program);
    if (program == nullptr) continue;
    std::vector<plan::Traffic> traffic = plan::traffic_of(page.plan, *program, rank_class.ranks.front());
    std::int64_t bytes = 0;
    for (const plan::Traffic& entry : traffic) bytes += entry.bytes.count;
    if (bytes > most_bytes) {
      most = std::move(traffic);
      most_bytes = bytes;
    }
  }
  Json list = Json::array();
  for (const plan::Traffic& entry : most) {
    list.push(
        Json::object({{"axis", plan::name_of(entry.axis)}, {"kind", entry.kind}, {"calls", entry.calls}, {"bytes", entry.bytes.count}}));
  }
  return list;
}

std::int64_t Writer::fullest_class() const {
  return page_.plan.classes.empty() ? -1 : static_cast<std::int64_t>(&plan::fullest_class(page_.plan) - page_.plan.classes.data());
}

Json Writer::write() {
  Json classes = Json::array();
  for (std::size_t index = 0; index < page_.plan.classes.size(); ++index) classes.push(class_json(index));
  Json notes = Json::array();
  for (const std::string& note : page_.plan.notes) notes.push(Json(note));
  Json figures = Json::array();
  for (const auto& [name, value] : page_.figures) figures.push(Json::array({Json(name), Json(value)}));
  Json works = Json::array();
  for (const auto& [color, name] : kPageWorks) works.push(Json::array({Json(color), Json(name)}));
  return Json::object({{"model", page_.plan.model},
                       {"strategy", page_.plan.strategy},
                       {"outlined", page_.outlined},
                       {"notes", std::move(notes)},
                       {"figures", std::move(figures)},
                       {"tables", tables_json()},
                       {"seconds_per_tick", seconds_per_tick_},
                       {"ticks", ticks_},
                       {"ticks_beside", ticks_beside_},
                       {"curves", curves_json()},
                       {"times_name", page_.times_name},
                       {"beside_name", page_.beside_name},
                       {"works", std::move(works)},
                       {"labels", labels_.names()},
                       {"label_works", labels_.works()},
                       {"fullest", fullest_class()},
                       {"classes", std::move(classes)},
                       {"traffic", traffic_json(page_)}});
}

}  // namespace

std::string work_name(plan::StreamKind stream, std::string_view label) {
  return std::string(kPageWorks.at(static_cast<std::size_t>(work_of(stream, label))).second);
}

Json page_data(const Page& page) { return Writer(page).write(); }

}  // namespace plimsoll::report
