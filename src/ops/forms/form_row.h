// From how one element is coded (block_codes.h) to the row of a form.
#pragma once

#include "ops/forms/block_codes.h"
#include "ops/forms/form.h"

namespace plimsoll::ops {

namespace detail {

template <typename Form>
[[gnu::always_inline]] inline void encode_blocks(const float* values, std::int64_t blocks, std::uint8_t* records) {
  for (std::int64_t block = 0; block < blocks; ++block) Form::encode(values + block * Form::kBlock, records + block * Form::kRecord);
}

template <typename Form>
[[gnu::always_inline]] inline void decode_blocks(const std::uint8_t* records, std::int64_t blocks, float* values) {
  for (std::int64_t block = 0; block < blocks; ++block) Form::decode(records + block * Form::kRecord, values + block * Form::kBlock);
}

PLIMSOLL_ROW_CODE(encode, (const float* values, std::int64_t blocks, std::uint8_t* records), (encode_blocks<Row>(values, blocks, records)))
PLIMSOLL_ROW_CODE(decode, (const std::uint8_t* records, std::int64_t blocks, float* values), (decode_blocks<Row>(records, blocks, values)))

}  // namespace detail

template <typename Codes>
constexpr FormInfo form_row() {
  using Form = BlockForm<Codes>;
  static_assert(kMostBlock % Form::kBlock == 0, "a record would be in two shards");
  return {.name = Codes::kName,
          .block = Form::kBlock,
          .record = Form::kRecord,
          .encode = {{detail::encode_plain<Form>, detail::encode_avx2<Form>, detail::encode_avx512<Form>}},
          .decode = {{detail::decode_plain<Form>, detail::decode_avx2<Form>, detail::decode_avx512<Form>}}};
}

}  // namespace plimsoll::ops
