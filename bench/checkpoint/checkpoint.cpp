// Times what goes to and from files: a checkpoint of GPT-2 124M with optimizer state saved and loaded, a safetensors file of
// its weights read, and what those are measured by: the sums alone and the memory's own rate.
//
//   bench_checkpoint --kind save --folder /tmp/x        # one step = one save, synced and read back
//   bench_checkpoint --kind load | read | sums | copy | safetensors
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>

#include "checkpoint/block_sum.h"
#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"
#include "io/posix_file_system.h"
#include "serve.h"

namespace plimsoll {
namespace {

enum class Kind { save, load, read, sums, copy, blocks, safetensors };

struct Options {
  bench::ServeOptions serve;
  Kind kind = Kind::save;
  std::string folder = "/tmp/plimsoll-bench-checkpoint";
  std::int64_t megabytes = 1493;  // weights and two moments of GPT-2 124M in f32
  bool cold = false;
};

void add_options(CLI::App& app, Options& options) {
  bench::add_options(app, options.serve);
  const std::map<std::string, Kind> kinds{{"save", Kind::save},
                                          {"load", Kind::load},
                                          {"read", Kind::read},
                                          {"sums", Kind::sums},
                                          {"copy", Kind::copy},
                                          {"blocks", Kind::blocks},
                                          {"safetensors", Kind::safetensors}};
  app.add_option("--kind", options.kind)->transform(CLI::CheckedTransformer(kinds));
  app.add_option("--folder", options.folder, "where files go")->capture_default_str();
  app.add_option("--megabytes", options.megabytes)->check(CLI::Range(1, 100'000))->capture_default_str();
  app.add_flag("--cold", options.cold, "drop the files' pages before each step");
}

constexpr std::int64_t kTensors = 150;

struct Memory {
  explicit Memory(std::int64_t bytes) : each(bytes / kTensors / 64 * 64), data(static_cast<std::size_t>(each * kTensors)) {
    for (std::size_t at = 0; at < data.size(); at += 8) data[at] = static_cast<std::byte>(at * 2654435761u >> 13);
  }
  std::span<std::byte> tensor(std::int64_t index) {
    return std::span(data).subspan(static_cast<std::size_t>(index * each), static_cast<std::size_t>(each));
  }
  std::int64_t each;
  std::vector<std::byte> data;
};

std::string name_of(std::int64_t index) { return fmt::format("tensor.{:03}", index); }

// work(0 .. count-1), dealt to threads.
void in_parallel(int threads, std::int64_t count, const std::function<void(std::int64_t)>& work) {
  std::vector<std::thread> others;
  for (int thread = 0; thread < threads; ++thread) {
    others.emplace_back([&, thread] {
      for (std::int64_t index = thread; index < count; index += threads) work(index);
    });
  }
  for (std::thread& other : others) other.join();
}

void drop_pages(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const int file = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }
}

std::function<void()> save_step(const Options& options, Memory& memory, io::FileSystem& files) {
  return [&, step = std::int64_t{0}]() mutable {
    std::vector<checkpoint::TensorSource> sources;
    for (std::int64_t index = 0; index < kTensors; ++index)
      sources.push_back({name_of(index), base::DType::f32, {memory.each / 4}, memory.tensor(index)});
    checkpoint::save(files, options.folder, {.identity = {"bench", "0"}, .step = ++step}, sources);
  };
}

std::function<void()> load_step(const Options& options, Memory& memory, io::FileSystem& files) {
  save_step(options, memory, files)();
  return [&] {
    if (options.cold) drop_pages(options.folder);
    std::vector<checkpoint::TensorTarget> targets;
    for (std::int64_t index = 0; index < kTensors; ++index)
      targets.push_back({name_of(index), base::DType::f32, {memory.each / 4}, memory.tensor(index)});
    checkpoint::load(files, checkpoint::open(files, io::Path(options.folder) / checkpoint::step_name(1)), targets);
  };
}

// The drive's own rate, or that of the cache of pages.
std::function<void()> read_step(const Options& options, Memory& memory, io::FileSystem& files) {
  const io::Path path = io::Path(options.folder) / "plain.bin";
  io::File out(files, path, io::OpenMode::create);
  out.write_at(0, memory.data);
  out.sync();
  return [&, path] {
    if (options.cold) drop_pages(options.folder);
    const io::File file(files, path, io::OpenMode::read);
    in_parallel(options.serve.threads, kTensors, [&](std::int64_t index) { file.read_exactly(index * memory.each, memory.tensor(index)); });
  };
}

// What a load does but for its sums: a few blocks at a time, from the page cache or from the drive. Of the same file, since the pages of
// one that was written in larger pieces are larger, and mapped sooner.
std::function<void()> blocks_step(const Options& options, Memory& memory, io::FileSystem& files) {
  save_step(options, memory, files)();
  const io::Path path = io::Path(options.folder) / checkpoint::step_name(1) / checkpoint::data_name(0);
  return [&, path] {
    if (options.cold) drop_pages(options.folder);
    const io::Mapping mapping = files.map(path);
    in_parallel(options.serve.threads, kTensors, [&](std::int64_t index) {
      const auto part = mapping.bytes().subspan(static_cast<std::size_t>(index * memory.each), static_cast<std::size_t>(memory.each));
      constexpr std::size_t kTogether = 2 * checkpoint::kBlockBytes;
      for (std::size_t at = 0; at < part.size(); at += kTogether) {
        mapping.check_size();
        mapping.copy(part.subspan(at, std::min(kTogether, part.size() - at)), memory.tensor(index).data() + at);
      }
    });
  };
}

std::function<void()> safetensors_step(const Options& options, Memory& memory, io::FileSystem& files) {
  const io::Path path = io::Path(options.folder) / "weights.safetensors";
  std::vector<formats::TensorSpec> specs;
  for (std::int64_t index = 0; index < kTensors; ++index) specs.push_back({name_of(index), formats::FileDType::f32, {memory.each / 4}});
  formats::SafetensorsWriter writer(files, path, specs, {});
  for (std::int64_t index = 0; index < kTensors; ++index) writer.write(name_of(index), 0, memory.tensor(index));
  writer.finish();
  return [&, path] {
    if (options.cold) drop_pages(options.folder);
    const formats::Safetensors file = formats::Safetensors::open(files, path);
    in_parallel(options.serve.threads, kTensors, [&](std::int64_t index) {
      const std::span<std::byte> to = memory.tensor(index);
      formats::read_f32(file.at(name_of(index)), 0, {reinterpret_cast<float*>(to.data()), to.size() / 4});
    });
  };
}

void run(const Options& options) {
  io::PosixFileSystem files;
  std::filesystem::remove_all(options.folder);
  std::filesystem::create_directories(options.folder);
  Memory memory(options.megabytes * 1'000'000);
  std::vector<std::byte> other(options.kind == Kind::copy ? memory.data.size() : 0);
  std::function<void()> step;
  switch (options.kind) {
    case Kind::save: step = save_step(options, memory, files); break;
    case Kind::load: step = load_step(options, memory, files); break;
    case Kind::read: step = read_step(options, memory, files); break;
    case Kind::blocks: step = blocks_step(options, memory, files); break;
    case Kind::safetensors: step = safetensors_step(options, memory, files); break;
    case Kind::sums:
      step = [&] {
        constexpr std::size_t kBlock = 1 << 20;
        std::uint32_t all = 0;
        for (std::size_t at = 0; at < memory.data.size(); at += kBlock)
          all ^= checkpoint::block_sum(std::span(memory.data).subspan(at, std::min(kBlock, memory.data.size() - at)));
        if (all == 1) bench::say("unlikely");  // so that the sums are not left out
      };
      break;
    case Kind::copy:
      step = [&] {
        in_parallel(options.serve.threads, kTensors, [&](std::int64_t index) {
          const std::span<std::byte> from = memory.tensor(index);
          std::memcpy(other.data() + index * memory.each, from.data(), from.size());
        });
      };
      break;
  }
  bench::serve(options.serve, step, [&](double best) {
    const auto bytes = static_cast<double>(memory.each * kTensors);
    return base::Json::object({{"bytes", memory.each * kTensors}, {"bytes_per_second", bytes / best}});
  });
  std::filesystem::remove_all(options.folder);
}

}  // namespace
}  // namespace plimsoll

int main(int count, char** arguments) {
  CLI::App app("Times checkpoints and safetensors files against memory");
  plimsoll::Options options;
  plimsoll::add_options(app, options);
  return plimsoll::bench::run_program(app, count, arguments, [&] { plimsoll::run(options); });
}
