// How near the disk tier comes to the drive: the update of a training step with its optimizer state on disk, which reads and writes
// all of it, against reading and writing as many bytes around the page cache with nothing else to do, in turns.
//
//   bench_disk --folder /data/scratch --layers 24
#include <cstdlib>
#include <limits>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/parallel.h"
#include "families/families.h"
#include "io/posix_file_system.h"
#include "storage/disk/block_store.h"
#include "train/session/session.h"

namespace {

using namespace plimsoll;

constexpr std::int64_t kBlock = storage::disk::BlockStore::kBlock;

struct Options {
  std::string folder = ".";
  std::int64_t layers = 16;
  std::int64_t width = 768;
  int rounds = 3;
};

train::SessionOptions session_options(const Options& options) {
  model::Model model = families::defaults(families::gpt2());
  model.layers = options.layers;
  model.width = options.width;
  model.heads = model.kv_heads = options.width / 64;
  model.head_dim = 64;
  model.ffn = 4 * options.width;
  model.context = 32;
  model.vocab = 257;
  model::Training training;
  training.micro_batch = {.samples = 1, .sequence = 8};
  strategy::Strategy strategy;
  strategy.offload.optimizer = {.disk = 1.0};
  return {.forward = train::forward_of(model), .name = "disk", .training = training, .strategy = strategy, .disk_folder = options.folder};
}

// Bytes that a step reads from the disk, and writes to it.
std::int64_t bytes_read(const plan::Plan& plan) {
  std::int64_t bytes = 0;
  const plan::Program& program = *plan::find_program(plan.classes[0], "train");
  for (const plan::Stream& stream : program.streams) {
    for (const plan::Call& call : stream.calls) {
      if (stream.kind != plan::StreamKind::disk_in) continue;
      for (const plan::Instruction& instruction : plan.procedures[program.procedure_of(call)].instructions)
        bytes += std::get<plan::Copy>(instruction).from.type.bytes();
    }
  }
  return bytes;
}

// From the first copy from the disk to the end of the last one to it.
double update_seconds(train::Session& session, std::uint32_t number) {
  for (const char* input : {"tokens", "targets", "positions"}) {
    const auto values = session.input("train", input, 0);
    for (std::size_t index = 0; index < values.size(); ++index) values[index] = static_cast<std::int32_t>(index);
  }
  executor::Timeline timeline;
  session.step({.learning_rate = 1e-4f, .step = number, .valid_targets = 8}, &timeline);
  double begin = std::numeric_limits<double>::max();
  double end = 0.0;
  for (const executor::TimelineEvent& event : timeline.events) {
    if (event.kernel != "disk to host" && event.kernel != "host to disk") continue;
    begin = std::min(begin, event.begin);
    end = std::max(end, event.end);
  }
  return end - begin;
}

// As many bytes, half of them read and half of them written, by as many threads as the tier has.
double drive_seconds(io::FileSystem& files, const io::Path& folder, std::int64_t bytes) {
  constexpr std::int64_t kThreads = 8;
  const io::Path path = folder / "plimsoll-bench-drive";
  if (files.status(path)) files.remove(path);
  io::File file(files, path, io::OpenMode::scratch);
  files.remove(path);
  const std::int64_t blocks = bytes / kBlock;
  const auto share = [&](bool write, std::int64_t thread, std::int64_t threads) {
    const std::unique_ptr<std::byte, void (*)(void*)> memory(static_cast<std::byte*>(std::aligned_alloc(4096, kBlock)), std::free);
    std::fill_n(memory.get(), kBlock, std::byte{0x5A});
    for (std::int64_t block = thread; block < blocks; block += threads) {
      const std::span<std::byte> all(memory.get(), static_cast<std::size_t>(kBlock));
      write ? file.write_at(block * kBlock, all) : static_cast<void>(file.read_at(block * kBlock, all));
    }
  };
  base::in_parallel(kThreads, [&](std::int64_t thread) { share(true, thread, kThreads); });
  const auto start = std::chrono::steady_clock::now();
  base::in_parallel(kThreads, [&](std::int64_t thread) { share(thread % 2 == 0, thread / 2, kThreads / 2); });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void run(const Options& options) {
  io::PosixFileSystem files;
  train::Session session(session_options(options));
  const std::int64_t bytes = bytes_read(session.plan());
  fmt::print("{} of optimizer state, {} of staging in the host's memory\n", base::to_string(base::Bytes{bytes}),
             base::to_string(session.plan().classes[0].arena[static_cast<std::size_t>(plan::Tier::host)]));
  fmt::print("{:>22} {:>22} {:>7}\n", "update, read + written", "drive, read + written", "share");
  update_seconds(session, 1);
  for (int round = 0; round < options.rounds; ++round) {
    const double ours = update_seconds(session, static_cast<std::uint32_t>(round + 2));
    const double drive = drive_seconds(files, options.folder, bytes);
    const auto rate = [&](double seconds) { return fmt::format("{:.0f} MB/s", 2e-6 * static_cast<double>(bytes) / seconds); };
    fmt::print("{:>22} {:>22} {:>6.0f}%\n", rate(ours), rate(drive), 100.0 * drive / ours);
  }
}

}  // namespace

int main(int count, char** arguments) {
  Options options;
  CLI::App app("the disk tier against its drive");
  app.add_option("--folder", options.folder, "on the drive")->capture_default_str();
  app.add_option("--layers", options.layers)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--width", options.width, "a multiple of 64")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--rounds", options.rounds)->check(CLI::PositiveNumber)->capture_default_str();
  CLI11_PARSE(app, count, arguments);
  try {
    run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
