// Strong index types: a BufferId cannot be passed where a ValueId is meant.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/error.h"

namespace plimsoll::base {

template <typename Tag>
struct Id {
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  std::uint32_t index = kNone;

  constexpr bool valid() const { return index != kNone; }
  constexpr auto operator<=>(const Id&) const = default;
};

// A vector that is indexed by its own id type only.
template <typename IdType, typename T>
class IdVector {
 public:
  IdVector() = default;
  explicit IdVector(std::size_t count, const T& value = T{}) : items_(count, value) {}

  IdType add(T item) {
    items_.push_back(std::move(item));
    return IdType{static_cast<std::uint32_t>(items_.size() - 1)};
  }
  T& operator[](IdType id) { return items_[checked(id)]; }
  const T& operator[](IdType id) const { return items_[checked(id)]; }
  std::size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  void resize(std::size_t count, const T& value = T{}) { items_.resize(count, value); }
  void shrink_to_fit() { items_.shrink_to_fit(); }
  IdType next_id() const { return IdType{static_cast<std::uint32_t>(items_.size())}; }

  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  const std::vector<T>& items() const { return items_; }

  bool operator==(const IdVector&) const = default;

 private:
  std::size_t checked(IdType id) const {
    PLIMSOLL_CHECK(id.index < items_.size(), "id {} of {}", id.index, items_.size());
    return id.index;
  }
  std::vector<T> items_;
};

}  // namespace plimsoll::base

template <typename Tag>
struct std::hash<plimsoll::base::Id<Tag>> {
  std::size_t operator()(plimsoll::base::Id<Tag> id) const noexcept { return id.index; }
};
