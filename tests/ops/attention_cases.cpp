// The cases of attention: packed heads, queries and keys of their own, a cache; every mask.
#include "ops/case_lists.h"
#include "ops/masks/rules.h"

namespace plimsoll::op_cases {

namespace {

ops::MaskPattern strided(std::int64_t local, std::int64_t stride) {
  return {.rule = ops::find_mask_rule("strided"), .numbers = {local, stride}};
}

}  // namespace

void add_attention(std::vector<Case>& cases) {
  Pick pick("attention");
  struct Size {
    ops::Heads heads;
    std::int64_t batch;
    std::int64_t length;
  };
  const std::vector<Size> sizes{{{1, 1, 4}, 1, 1},    {{2, 2, 7}, 2, 5},    {{4, 2, 16}, 2, 33},  {{6, 1, pick(3, 30)}, 2, pick(40, 90)},
                                {{2, 2, 64}, 1, 150}, {{4, 2, 128}, 2, 64}, {{3, 3, 64}, 2, 136}, {{2, 2, 64}, 1, 256},
                                {{4, 2, 32}, 2, 128}};
  for (const DType dtype : kTypes) {
    for (const Size& size : sizes) {
      const std::vector<ops::Attention> forms{
          {.heads = size.heads},
          {.heads = size.heads, .causal = false},
          {.heads = size.heads, .segmented = true},
          {.heads = size.heads, .causal = false, .segmented = true},
          {.heads = size.heads, .window = 3},
          {.heads = size.heads, .window = 40, .segmented = true},
          {.heads = size.heads, .rate = kRate},
          {.heads = size.heads, .causal = false, .segmented = true, .rate = kRate},
          {.heads = size.heads, .pattern = strided(3, 7)},
          {.heads = size.heads, .causal = false, .segmented = true, .rate = kRate, .first_head = 2, .pattern = strided(0, 9)},
      };
      for (const ops::Attention& form : forms) {
        cases.push_back(attention_case(form, size.batch, size.length, dtype));
        cases.push_back(attention_grad_case(form, size.batch, size.length, dtype));
        // Where queries see one key each nothing depends on scores: second derivatives are nothing but rounding.
        if (size.length > 5) cases.push_back(attention_grad_grad_case(form, size.batch, size.length, dtype));
      }
    }
    cases.push_back(attention_grad_grad_case({.heads = {2, 1, 4}}, 2, 12, dtype));
  }
}

void add_separate_attention(std::vector<Case>& cases) {
  struct Part {
    ops::Heads heads;
    std::int64_t batch, queries, keys;
    std::int64_t first_query, first_key, stride;
  };
  const std::vector<Part> parts{{{1, 1, 4}, 1, 1, 3, 2, 0, 1},     {{2, 2, 7}, 2, 5, 9, 4, 0, 1},       {{4, 2, 16}, 2, 20, 33, 13, 0, 1},
                                {{6, 1, 20}, 2, 50, 70, 70, 0, 1}, {{2, 2, 64}, 1, 130, 70, 20, 60, 1}, {{2, 1, 8}, 2, 70, 40, 1, 0, 4},
                                {{4, 2, 32}, 1, 64, 64, 64, 0, 1}, {{3, 3, 128}, 1, 33, 129, 100, 3, 1}};
  for (const DType dtype : kTypes) {
    for (const Part& part : parts) {
      const ops::Attention plain{
          .heads = part.heads, .first_query = part.first_query, .first_key = part.first_key, .stride = part.stride, .length = 300};
      std::vector<ops::Attention> forms(6, plain);
      forms[1].causal = false;
      forms[2].window = 9;
      forms[3].segmented = true;
      forms[4].rate = kRate;
      forms[5].pattern = strided(4, 6);
      forms[5].causal = false;
      for (const ops::Attention& form : forms) {
        // Queries of such short documents may see one key each: gradients of scores are then nothing but rounding.
        if (form.segmented && part.keys < 10) continue;
        cases.push_back(separate_attention_case(form, part.batch, part.queries, part.keys, dtype));
        for (const bool of_lse : {false, true})
          cases.push_back(separate_attention_grad_case(form, part.batch, part.queries, part.keys, dtype, of_lse));
      }
    }
    for (const DType other : {dtype, DType::bf16}) {
      for (const std::int64_t heads : {1, 3}) {
        const Shape out{2, 4 + heads, heads * 9};
        cases.push_back(merge_attention_case(out, heads, dtype, other));
        for (const bool of_lse : {false, true}) cases.push_back(merge_attention_grad_case(out, heads, dtype, other, of_lse));
      }
      if (dtype == DType::bf16) break;  // the other is the same
    }
  }
}

void add_cached_attention(std::vector<Case>& cases) {
  Pick pick("cached_attention");
  struct Size {
    ops::Heads heads;
    std::int64_t batch;
    std::int64_t length;
    std::int64_t slots;
  };
  const std::vector<Size> sizes{{{1, 1, 4}, 1, 1, 1},    {{2, 2, 7}, 2, 5, 9},
                                {{4, 2, 16}, 2, 1, 33},  {{6, 1, pick(3, 30)}, 2, pick(1, 9), pick(40, 90)},
                                {{4, 4, 64}, 1, 3, 150}, {{3, 1, 80}, 1, 20, 50}};
  for (const DType dtype : kTypes) {
    for (const Size& size : sizes) {
      for (const std::int64_t window : {0, 1, 20}) {
        cases.push_back(cached_attention_case({.heads = size.heads, .window = window}, size.batch, size.length, size.slots, dtype));
      }
      for (const ops::MaskPattern& pattern : {strided(2, 5), strided(0, 4)})
        cases.push_back(
            cached_attention_case({.heads = size.heads, .window = 20, .pattern = pattern}, size.batch, size.length, size.slots, dtype));
    }
  }
}

}  // namespace plimsoll::op_cases
