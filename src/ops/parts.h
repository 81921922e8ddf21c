// Parts of a tensor along one dim, as ranks or tiles hold them (placement.h), taken out of the whole and put back into it.
#pragma once

#include "ops/attributes.h"

namespace plimsoll::ops {

// Which part: `count` of a dim's `extent` from `begin` on, and behind it in memory `tail` more from further on, which neighbours hold too.
struct PartOfDim {
  int dim = 0;
  std::int64_t extent = 1;
  std::int64_t begin = 0;
  std::int64_t count = 1;
  std::int64_t tail_begin = 0;
  std::int64_t tail = 0;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("dim", self.dim);
    visit("extent", self.extent);
    visit("begin", self.begin);
    visit("count", self.count);
    visit("tail_begin", self.tail_begin);
    visit("tail", self.tail);
  }
  bool operator==(const PartOfDim&) const = default;
};

// (part, [whole]) -> whole, with the part in its place: zeros elsewhere, or (`into`) what is there. The tail may be left out, where
// somebody else puts it.
struct PutPart {
  PartOfDim part;
  bool without_tail = false;
  bool into = false;
  PLIMSOLL_OP("put_part") {
    PartOfDim::fields(self.part, visit);
    visit("without_tail", self.without_tail);
    visit("into", self.into);
  }
  bool operator==(const PutPart&) const = default;
};

// (whole) -> part.
struct TakePart {
  PartOfDim part;
  PLIMSOLL_OP("take_part") { PartOfDim::fields(self.part, visit); }
  bool operator==(const TakePart&) const = default;
};

// A part's stretches of memory: calls visit(element in the whole, element in the part, how many) for each, in order.
template <typename Visit>
void for_each_stretch(const PartOfDim& part, const base::Shape& shape, bool tail, const Visit& visit) {
  std::int64_t outer = 1;
  for (int dim = 0; dim < part.dim; ++dim) outer *= shape[dim];
  std::int64_t inner = 1;
  for (int dim = part.dim + 1; dim < shape.rank(); ++dim) inner *= shape[dim];
  for (std::int64_t at = 0; at < outer; ++at) {
    const std::int64_t in_whole = at * part.extent;
    const std::int64_t in_part = at * (part.count + part.tail);
    visit((in_whole + part.begin) * inner, in_part * inner, part.count * inner);
    if (tail && part.tail > 0) visit((in_whole + part.tail_begin) * inner, (in_part + part.count) * inner, part.tail * inner);
  }
}

}  // namespace plimsoll::ops
