// The tokens between a program's streams: each is given once in a run and may be waited for by several streams.
//
// A stream that fails cannot give its tokens; fail() lets everybody who waits go on, with an error.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace plimsoll::executor {

// What a waiting stream gets when another one failed: not the cause, only the end.
struct StreamFailed {};

class Tokens {
 public:
  explicit Tokens(std::uint32_t count) : count_(count), given_(std::make_unique<std::atomic<std::uint32_t>[]>(count)) {}

  // A new run: what was given before counts no more.
  void start() {
    ++run_;
    failed_.store(false);
  }

  void give(std::uint32_t token) {
    given_[token].store(run_, std::memory_order_release);
    given_[token].notify_all();
  }

  void wait(std::uint32_t token) const {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (given_[token].load(std::memory_order_acquire) == run_) return check();
    }
    for (std::uint32_t seen = given_[token].load(std::memory_order_acquire); seen != run_;
         seen = given_[token].load(std::memory_order_acquire))
      given_[token].wait(seen, std::memory_order_acquire);
    check();
  }

  void fail() {
    failed_.store(true);
    for (std::uint32_t token = 0; token < count_; ++token) give(token);
  }

 private:
  static constexpr int kSpins = 200;

  void check() const {
    if (failed_.load()) throw StreamFailed{};
  }

  std::uint32_t count_;
  std::unique_ptr<std::atomic<std::uint32_t>[]> given_;
  std::uint32_t run_ = 0;
  std::atomic<bool> failed_{false};
};

}  // namespace plimsoll::executor
