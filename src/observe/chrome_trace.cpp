#include "observe/chrome_trace.h"

#include <cmath>

namespace plimsoll::observe {

ChromeTrace::ChromeTrace(Sink sink, double origin) : sink_(std::move(sink)), origin_(origin) {}

double ChromeTrace::microseconds(double seconds) const { return std::round(seconds * 1e9) / 1e3; }

void ChromeTrace::write_item(const base::Json& item) {
  sink_((first_ ? "[\n" : ",\n") + base::write_json(item));
  first_ = false;
}

void ChromeTrace::name_process(std::int64_t process, std::string_view name) {
  write_item(base::Json::object({{"ph", "M"}, {"name", "process_name"}, {"pid", process}, {"args", base::Json::object({{"name", name}})}}));
  write_item(base::Json::object(
      {{"ph", "M"}, {"name", "process_sort_index"}, {"pid", process}, {"args", base::Json::object({{"sort_index", process}})}}));
}

void ChromeTrace::name_thread(Lane lane, std::string_view name) {
  write_item(base::Json::object(
      {{"ph", "M"}, {"name", "thread_name"}, {"pid", lane.process}, {"tid", lane.thread}, {"args", base::Json::object({{"name", name}})}}));
  write_item(base::Json::object({{"ph", "M"},
                                 {"name", "thread_sort_index"},
                                 {"pid", lane.process},
                                 {"tid", lane.thread},
                                 {"args", base::Json::object({{"sort_index", lane.thread}})}}));
}

void ChromeTrace::write(const Span& span) {
  base::Json args = base::Json::object();
  for (const auto& [key, value] : span.args) args.set(key, value);
  write_item(base::Json::object({{"ph", "X"},
                                 {"name", span.name},
                                 {"cat", span.category},
                                 {"pid", span.lane.process},
                                 {"tid", span.lane.thread},
                                 {"ts", microseconds(span.begin - origin_)},
                                 {"dur", microseconds(span.seconds)},
                                 {"args", std::move(args)}}));
}

void ChromeTrace::finish() { sink_(first_ ? "[]\n" : "\n]\n"); }

}  // namespace plimsoll::observe
