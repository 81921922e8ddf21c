// The axes of the device mesh, as a table. An axis is known by its name; whatever else is to be known of it is a fact of its row, and other
// folders ask for those, not for an axis by name. Rows beside these come with a strategy (strategy::AxisDegree), so an axis that needs no
// pass of its own is added without a change here.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace plimsoll::ops {

class Axis {
 public:
  // Lower-case letters, digits and underscores.
  static constexpr std::size_t kLongest = 15;

  constexpr Axis() = default;  // none
  consteval explicit Axis(std::string_view name) { std::copy(name.begin(), name.end(), name_.begin()); }
  // A name that somebody may have written; nullopt where it is none.
  static constexpr std::optional<Axis> named(std::string_view name) {
    const auto good = [](char letter) { return (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9') || letter == '_'; };
    if (name.empty() || name.size() > kLongest || !std::all_of(name.begin(), name.end(), good)) return std::nullopt;
    Axis axis;
    std::copy(name.begin(), name.end(), axis.name_.begin());
    return axis;
  }

  constexpr std::string_view name() const { return name_.data(); }
  constexpr bool valid() const { return name_[0] != '\0'; }
  // Both written out: nvcc declares those that are defaulted without defining them.
  friend constexpr bool operator==(const Axis& a, const Axis& b) { return a.name_ == b.name_; }
  friend constexpr auto operator<=>(const Axis& a, const Axis& b) { return a.name_ <=> b.name_; }

  static const Axis pipe, data, tensor, tied, data_inner, data_outer, tensor_inner;  // NOLINT(readability-identifier-naming)

 private:
  std::array<char, kLongest + 1> name_{};
};

inline constexpr Axis Axis::pipe{"pipe"};
inline constexpr Axis Axis::data{"data"};
inline constexpr Axis Axis::tensor{"tensor"};
inline constexpr Axis Axis::tied{"tied"};
inline constexpr Axis Axis::data_inner{"data_inner"};
inline constexpr Axis Axis::data_outer{"data_outer"};
inline constexpr Axis Axis::tensor_inner{"tensor_inner"};

// What the ranks of an axis share out.
enum class Shares : std::uint8_t {
  nothing,  // all do the same with the same
  batch,    // the samples of a step: all do the same, each with its own
  tensors,  // dims of tensors: each has a program of its own
  blocks,   // the blocks of the model: likewise
};

struct AxisRow {
  Axis axis{};
  Shares shares = Shares::nothing;
  Axis part_of{};               // its ranks are some of that axis's; none: it is an axis of its own
  Axis inside{};                // of its own: it lies right inside that axis, whose places each hold all of it; none: it is outermost
  bool sums_gradients = false;  // over it, where a parameter does not say otherwise (graph::Parameter::sums_over)
  bool at_once = false;         // who meets on it waits for the result; else computing goes on meanwhile
  bool some_places = false;     // of a part: of the places of its axis, only these are on it
  bool one_writes = false;      // of what all its ranks hold, the first writes the checkpoint; else each writes a share

  // Ranks at its places run different programs.
  constexpr bool differs() const { return shares == Shares::tensors || shares == Shares::blocks; }
  bool operator==(const AxisRow&) const = default;
};

// `tied` joins the two places of the pipe axis that hold one weight: the first, with the embedding, and that of the head. `data` has two
// levels: ranks of `data_inner` share out what they hold, those of `data_outer` hold the same. Ranks of `tensor_inner` hold the same
// key-value head, where there are more ranks than such heads. Outermost first, parts behind all axes of their own: neighbours on `tensor`
// talk most.
inline constexpr std::array<AxisRow, 7> kAxes{{
    {.axis = Axis::pipe, .shares = Shares::blocks},
    {.axis = Axis::data, .shares = Shares::batch, .inside = Axis::pipe, .sums_gradients = true},
    {.axis = Axis::tensor, .shares = Shares::tensors, .inside = Axis::data, .at_once = true},
    {.axis = Axis::tied, .shares = Shares::blocks, .part_of = Axis::pipe, .some_places = true},
    {.axis = Axis::data_outer, .shares = Shares::batch, .part_of = Axis::data},
    {.axis = Axis::data_inner, .shares = Shares::batch, .part_of = Axis::data},
    {.axis = Axis::tensor_inner, .shares = Shares::tensors, .part_of = Axis::tensor, .at_once = true},
}};

// Of the axes above; null: it is none of them.
constexpr const AxisRow* known_axis(const Axis& axis) {
  for (const AxisRow& row : kAxes) {
    if (row.axis == axis) return &row;
  }
  return nullptr;
}

// Whether it is `whole`, or one of the axes above that is a part of it.
constexpr bool is_of(const Axis& axis, const Axis& whole) {
  const AxisRow* row = known_axis(axis);
  return axis == whole || (row != nullptr && row->part_of == whole);
}

// The axes of their own, outermost first, with `further` ones put where they say. What names an axis that is not there is left out.
std::vector<AxisRow> nested(std::span<const AxisRow> further);

std::string_view name_of(const Axis& axis);
std::string_view name_of(Shares shares);
inline constexpr std::size_t kShares = 4;

}  // namespace plimsoll::ops
