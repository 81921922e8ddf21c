// A value that copies share until one of them is changed: of many large things that are alike there is one. Reading looks like reading
// the value itself; the first access that may change it takes a copy of its own, so values that are only read are best held as const.
#pragma once

#include <memory>
#include <utility>

namespace plimsoll::base {

template <typename T>
class Shared {
 public:
  Shared() : value_(std::make_shared<T>()) {}
  Shared(T value) : value_(std::make_shared<T>(std::move(value))) {}  // NOLINT(google-explicit-constructor): it stands for the value

  const T& get() const { return *value_; }
  operator const T&() const { return *value_; }  // NOLINT(google-explicit-constructor)
  T& edit() {
    if (value_.use_count() > 1) value_ = std::make_shared<T>(*value_);
    return *value_;
  }
  bool shares_with(const Shared& other) const { return value_ == other.value_; }

  // Of containers.
  auto begin() const { return get().begin(); }
  auto end() const { return get().end(); }
  auto begin() { return edit().begin(); }
  auto end() { return edit().end(); }
  std::size_t size() const { return get().size(); }
  bool empty() const { return get().empty(); }
  template <typename Index>
  const auto& operator[](Index index) const {
    return get()[index];
  }
  template <typename Index>
  auto& operator[](Index index) {
    return edit()[index];
  }
  template <typename Index>
  const auto& at(Index index) const {
    return get().at(index);
  }
  template <typename Index>
  auto& at(Index index) {
    return edit().at(index);
  }

  friend bool operator==(const Shared& a, const Shared& b) { return a.shares_with(b) || a.get() == b.get(); }

 private:
  std::shared_ptr<T> value_;
};

}  // namespace plimsoll::base
