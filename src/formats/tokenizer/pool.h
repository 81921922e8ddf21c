// Things that are costly to make and used by one thread at a time: taken from here, and given back at the end of the scope.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace plimsoll::formats::tokenizer {

template <typename T>
class Pool {
 public:
  class Lease {
   public:
    Lease(Pool& pool, std::unique_ptr<T> item) : pool_(pool), item_(std::move(item)) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() {
      const std::lock_guard lock(pool_.mutex_);
      pool_.free_.push_back(std::move(item_));
    }
    T& operator*() const { return *item_; }

   private:
    Pool& pool_;
    std::unique_ptr<T> item_;
  };

  // `make` is asked when none is free.
  template <typename Make>
  Lease take(Make make) {
    std::unique_ptr<T> item;
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        item = std::move(free_.back());
        free_.pop_back();
      }
    }
    return Lease(*this, item ? std::move(item) : make());
  }
  Lease take() {
    return take([] { return std::make_unique<T>(); });
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> free_;
};

}  // namespace plimsoll::formats::tokenizer
