// All-reduce of one f32 tensor in place, by each of our transports. Prints one line of JSON: the seconds of every step on rank 0, each
// begun after a barrier.
//   bench_allreduce --transport threads --ranks 2 --bytes 67108864 --steps 10
//   mpirun -n 2 bench_allreduce --transport mpi
// bench/allreduce.py runs it beside gloo and MPI_Allreduce.
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/json.h"
#include "collectives/local/processes.h"
#include "collectives/local/threads.h"
#include "collectives/mpi/mpi.h"
#include "raw_mpi.h"

namespace {

using namespace plimsoll;
using collectives::Transport;

struct Options {
  std::string transport = "threads";
  int ranks = 2;
  std::int64_t bytes = 64 << 20;
  int steps = 10;
  int warmup = 3;
};

void print(const std::vector<double>& seconds, const std::string& who, int ranks) {
  base::Json taken = base::Json::array();
  for (const double each : seconds) taken.push(each);
  fmt::print("{}\n", base::write_json(base::Json::object({{"transport", who}, {"ranks", ranks}, {"seconds", taken}})));
}

void run(Transport& transport, const Options& options) {
  const auto group = transport.make_world("bench");
  std::vector<float> data(static_cast<std::size_t>(options.bytes) / sizeof(float), 0.0f);
  const auto bytes = std::as_writable_bytes(std::span(data));
  std::vector<double> seconds;
  for (int step = 0; step < options.warmup + options.steps; ++step) {
    group->barrier();
    const auto start = std::chrono::steady_clock::now();
    group->all_reduce(bytes, bytes, base::DType::f32, collectives::Reduction::sum);
    if (step >= options.warmup) seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  if (transport.rank() == 0) print(seconds, transport.description(), transport.size());
}

int run_any(const Options& options, int count, char** arguments) {
  if (options.transport == "threads") {
    collectives::local::run_threads(options.ranks, [&](Transport& transport) { run(transport, options); });
  } else if (options.transport == "mpi") {
    run(*collectives::mpi::join(), options);
  } else if (options.transport == "raw-mpi") {
    const auto taken = bench::raw_mpi_all_reduce(options.bytes, options.warmup, options.steps);
    if (taken.rank == 0) print(taken.seconds, "MPI_Allreduce", taken.ranks);
  } else if (collectives::local::is_supervised()) {
    run(*collectives::local::join_processes(), options);
  } else {
    std::vector<std::string> command(arguments, arguments + count);
    command[0] = "/proc/self/exe";
    return collectives::local::supervise({.ranks = options.ranks, .command = command});
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app("Times an all-reduce");
  Options options;
  app.add_option("--transport", options.transport)->check(CLI::IsMember({"threads", "processes", "mpi", "raw-mpi"}));
  app.add_option("--ranks", options.ranks, "threads and processes; mpirun decides otherwise")->check(CLI::PositiveNumber);
  app.add_option("--bytes", options.bytes)->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps)->check(CLI::PositiveNumber);
  app.add_option("--warmup", options.warmup)->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, count, arguments);
  try {
    return run_any(options, count, arguments);
  } catch (const base::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.exit_code();
  }
}
