// Small runs that are saved to a file system which takes its time or has no room.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "collectives/local/threads.h"
#include "config/config.h"
#include "io/files.h"
#include "io/posix_file_system.h"
#include "train/checkpoints.h"

namespace plimsoll::train {

// Passes everything on; writing takes its time, and some writes find no room.
class HardFileSystem final : public io::FileSystem {
 public:
  std::chrono::microseconds each_write{0};
  std::atomic<int> full_writes{0};  // so many find the disk full
  std::atomic<bool> held{false};    // writes wait until it is false
  std::int64_t room = -1;           // what is said to be free, where it is not negative
  std::function<void()> on_write;

  void write_at(const io::OpenFile& file, std::int64_t offset, std::span<const std::byte> data) override {
    if (on_write) on_write();
    held.wait(true);
    std::this_thread::sleep_for(each_write);
    if (full_writes > 0 && --full_writes >= 0) throw io::IoError("write", file.path, ENOSPC);
    disk_.write_at(file, offset, data);
  }
  io::OpenFile open(const io::Path& path, io::OpenMode mode) override { return disk_.open(path, mode); }
  void close(const io::OpenFile& file) override { disk_.close(file); }
  std::int64_t size(const io::OpenFile& file) override { return disk_.size(file); }
  std::size_t read_at(const io::OpenFile& file, std::int64_t offset, std::span<std::byte> out) override {
    return disk_.read_at(file, offset, out);
  }
  void append(const io::OpenFile& file, std::span<const std::byte> data) override { disk_.append(file, data); }
  void sync(const io::OpenFile& file) override { disk_.sync(file); }
  io::Mapping map(const io::Path& path) override { return disk_.map(path); }
  void sync_directory(const io::Path& path) override { disk_.sync_directory(path); }
  void rename(const io::Path& from, const io::Path& to) override { disk_.rename(from, to); }
  void remove(const io::Path& path) override { disk_.remove(path); }
  void make_directory(const io::Path& path) override { disk_.make_directory(path); }
  std::vector<io::Entry> list(const io::Path& path) override { return disk_.list(path); }
  std::optional<io::Status> status(const io::Path& path) override { return disk_.status(path); }
  base::Bytes free_space(const io::Path& path) override { return room < 0 ? disk_.free_space(path) : base::Bytes{room}; }

 private:
  io::PosixFileSystem disk_;
};

class Recorder final : public observe::Observer {
 public:
  void on(const observe::Event& event) override {
    if (const auto* saved = std::get_if<observe::CheckpointSaved>(&event)) saves.push_back(*saved);
    if (const auto* notice = std::get_if<observe::Notice>(&event)) notices.push_back(notice->text);
    if (const auto* done = std::get_if<observe::StepDone>(&event)) last_step = done->step;
    noticed = !notices.empty();
  }
  std::int64_t last_step = 0;
  std::atomic<bool> noticed{false};
  std::vector<observe::CheckpointSaved> saves;
  std::vector<std::string> notices;
};

class CheckpointsTest : public testing::Test {
 protected:
  CheckpointsTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "plimsoll-saves-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    std::string text;
    for (int line = 0; line < 200; ++line) text += "the quick brown fox jumps over the lazy dog\n";
    std::ofstream(folder_ / "train.txt", std::ios::binary) << text;
  }
  ~CheckpointsTest() override { std::filesystem::remove_all(folder_); }

  config::Run run(std::vector<std::string> overrides = {}) {
    const std::string text = R"({"model": {"family": "gpt2", "layers": 2, "width": 16, "heads": 2, "context": 32, "vocab": 256},
      "data": {"train": ")" + (folder_ / "train.txt").string() +
                             R"("}, "batch": {"global": 4, "micro": 2, "sequence": 16}, "steps": 6, "threads": 1,
      "checkpoint": {"every": 1, "keep": 9, "retry_seconds": 0.05}})";
    return config::parse_run(text, "test.json", overrides);
  }

  static Trainer::Hooks hooks_of(Checkpoints& checkpoints, const SaveContext& context) {
    return {.save = [&](Trainer& at) { checkpoints.save(at, context); },
            .poll = [&](Trainer& at) { checkpoints.poll(at, context); },
            .drop = [&](Trainer& at) { checkpoints.drop(at, context); },
            .settle = [&](Trainer& at) { checkpoints.settle(at, context); }};
  }

  // Trains a run, from where it was left, and returns the bytes of its checkpoints.
  std::vector<std::string> train(const config::Run& run, const std::string& name) {
    Trainer trainer(run, {.file_system = disk_, .observer = recorder_, .clock = clock_, .stop_wanted = stop_});
    Checkpoints checkpoints(files_, run, (folder_ / name).string());
    checkpoints.resume(trainer);
    const SaveContext context{.observer = recorder_, .stop_wanted = stop_, .make_durable = {}};
    trainer.run(hooks_of(checkpoints, context));
    std::vector<std::string> bytes;
    for (const std::int64_t step : checkpoint::list_steps(disk_, folder_ / name)) {
      const io::Path path = folder_ / name / checkpoint::step_name(step);
      bytes.push_back(io::read_text(disk_, path / "manifest.json") + io::read_text(disk_, path / "data-00000.bin"));
    }
    return bytes;
  }

  // The same by two ranks.
  std::vector<std::string> train_two(const config::Run& run, const std::string& name) {
    collectives::local::run_threads(2, [&](collectives::Transport& transport) {
      Recorder silent;
      Recorder& recorder = transport.rank() == 0 ? recorder_ : silent;
      Trainer trainer(run, {.file_system = disk_, .observer = recorder, .clock = clock_, .stop_wanted = stop_, .transport = &transport});
      Checkpoints checkpoints(files_, run, (folder_ / name).string());
      checkpoints.resume(trainer);
      const SaveContext context{.observer = recorder, .stop_wanted = stop_, .make_durable = {}};
      trainer.run(hooks_of(checkpoints, context));
    });
    return tensors_in(name);
  }

  // What each of the checkpoints holds, tensor by tensor, the newest first.
  std::vector<std::string> tensors_in(const std::string& name) {
    std::vector<std::string> bytes;
    for (const std::int64_t step : checkpoint::list_steps(disk_, folder_ / name)) {
      const checkpoint::Checkpoint found = checkpoint::open(disk_, folder_ / name / checkpoint::step_name(step));
      std::string all;
      for (const checkpoint::TensorRecord& tensor : found.manifest.tensors) {
        std::string data(static_cast<std::size_t>(tensor.bytes()), '\0');
        const checkpoint::TensorTarget target{tensor.name, tensor.dtype, tensor.shape, std::as_writable_bytes(std::span(data))};
        checkpoint::load(disk_, found, std::span(&target, 1), checkpoint::Unclaimed::ignore);
        all += tensor.name + data;
      }
      bytes.push_back(std::move(all));
    }
    return bytes;
  }

  std::filesystem::path folder_;
  io::PosixFileSystem disk_;
  HardFileSystem files_;
  Recorder recorder_;
  observe::SystemClock clock_;
  std::atomic<bool> stop_{false};
};

}  // namespace plimsoll::train
