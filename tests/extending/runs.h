// A folder with a text to train on, and runs in it.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "config/config.h"
#include "train/run.h"

namespace plimsoll::extending {

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("plimsoll-extending-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
    std::ofstream text(path_ / "train.txt", std::ios::binary);
    for (int line = 0; line < 200; ++line) text << "the quick brown fox jumps over the lazy dog\n";
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::filesystem::path in(const std::string& name) const { return path_ / name; }

  config::Run run(const std::string& out, const std::vector<std::string>& overrides) const {
    const std::string text = R"({"model": {"family": "gpt2", "layers": 4, "width": 32, "heads": 2, "context": 32, "vocab": 256},
      "data": {"train": ")" + in("train.txt").string() +
                             R"("}, "batch": {"global": 8, "micro": 2, "sequence": 16}, "steps": 8, "threads": 1,
      "checkpoint": {"every": 1}, "out": ")" +
                             in(out).string() + R"("})";
    return config::parse_run(text, "run.json", overrides);
  }

 private:
  std::filesystem::path path_;
};

// Keeps the losses, and calls somebody after every step.
class Losses final : public train::RunObserver {
 public:
  void on(const observe::Event& event) override {
    const auto* step = std::get_if<observe::StepDone>(&event);
    if (step == nullptr) return;
    losses.push_back(step->loss);
    if (after_step) after_step(step->step);
  }
  void begins(const train::Beginning& beginning) override { resumed = beginning.resumed.from.has_value(); }

  std::vector<double> losses;
  bool resumed = false;
  std::function<void(std::int64_t step)> after_step;
};

}  // namespace plimsoll::extending
