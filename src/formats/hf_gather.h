// Moves rows between our tensors and Hugging Face ones as families/file_names.h says, converting element types on the way.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "formats/hf_names.h"
#include "formats/safetensors.h"

namespace plimsoll::formats {

// Some rows of one of our tensors.
struct OurRows {
  std::int64_t first = 0;
  std::int64_t elements = 0;  // of each row
};

// What `view`, which has the part's shape, holds of our rows that start at `rows.first` and fill `out`.
void gather_part(const HfPart& part, const TensorView& view, const OurRows& rows, std::span<float> out);

// The Hugging Face tensor of `part` out of our tensor, in the order of its bytes, some megabytes at a time:
// `write` gets the offset and the bytes, which it must not keep.
void scatter_part(const HfPart& part, std::span<const float> ours, std::int64_t row_elements, FileDType dtype,
                  const std::function<void(std::int64_t offset, std::span<const std::byte> bytes)>& write);

}  // namespace plimsoll::formats
