// Our side of bench/peers/protocol.py: the same options, the same lines, the same summary, so that the drivers treat
// our programs and the peers alike and can interleave their steps.
#pragma once

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/json.h"

namespace plimsoll::bench {

struct ServeOptions {
  int threads = 2;
  int steps = 5;
  int warmup = 1;
  bool interactive = false;
};

inline void add_options(CLI::App& app, ServeOptions& options) {
  app.add_option("--threads", options.threads)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--steps", options.steps, "timed steps (not in interactive mode)")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--warmup", options.warmup, "steps before timing starts")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_flag("--interactive", options.interactive, "one step per line read from standard input");
}

// The most memory the process ever held.
inline std::int64_t peak_rss_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  base::fail(base::ErrorKind::other, "/proc/self/status has no line VmHWM; the peak of memory cannot be measured here");
}

struct Seconds {
  double wall = 0.0;
  double cpu = 0.0;  // of all threads
};

inline double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

inline Seconds timed(const std::function<void()>& step) {
  const auto start = std::chrono::steady_clock::now();
  const double start_cpu = cpu_seconds();
  step();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), cpu_seconds() - start_cpu};
}

inline base::Json best_and_median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return base::Json::object({{"best", values.front()}, {"median", median}});
}

inline void add(base::Json& object, std::initializer_list<std::pair<std::string_view, base::Json>> members) {
  for (const auto& [key, value] : members) object.set(key, value);
}

inline void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

inline std::vector<Seconds> answer_lines(const std::function<void()>& step) {
  std::vector<Seconds> taken;
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    if (line != "step") base::bad_input("found \"{}\" on standard input, expected \"step\" or \"quit\"", line);
    taken.push_back(timed(step));
    say(fmt::format("{:.9f}", taken.back().wall));
  }
  return taken;
}

// Warms up, runs the steps the way the options ask, prints the summary. describe(best seconds) gives its first fields.
inline void serve(const ServeOptions& options, const std::function<void()>& step, const std::function<base::Json(double)>& describe) {
  base::Json warmup = base::Json::array();
  for (int index = 0; index < options.warmup; ++index) warmup.push(timed(step).wall);
  std::vector<Seconds> taken;
  if (options.interactive) {
    say(base::write_json(base::Json::object({{"ready", true}, {"pid", static_cast<std::int64_t>(getpid())}, {"warmup_seconds", warmup}})));
    taken = answer_lines(step);
  } else {
    for (int index = 0; index < options.steps; ++index) taken.push_back(timed(step));
  }
  base::Json summary = base::Json::object();
  if (!taken.empty()) {
    std::vector<double> wall, cpu;
    for (const Seconds& seconds : taken) {
      wall.push_back(seconds.wall);
      cpu.push_back(seconds.cpu);
    }
    summary = describe(*std::min_element(wall.begin(), wall.end()));
    add(summary, {{"step_seconds", best_and_median(wall)}, {"step_cpu_seconds", best_and_median(cpu)}});
  }
  add(summary, {{"steps", taken.size()}, {"threads", options.threads}, {"warmup_seconds", warmup}, {"peak_rss_bytes", peak_rss_bytes()}});
  say(base::write_json(summary));
}

// The main function of a program: parses into what `app` was given, runs it, and turns errors into exit codes.
inline int run_program(CLI::App& app, int count, char** arguments, const std::function<void()>& run) {
  CLI11_PARSE(app, count, arguments);
  try {
    run();
    return 0;
  } catch (const base::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.exit_code();
  }
}

}  // namespace plimsoll::bench
