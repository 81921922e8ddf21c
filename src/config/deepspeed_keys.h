// The keys of DeepSpeed's JSON and what becomes of each: one row per key, in the order of DeepSpeed's own documentation.
//
// A key is mapped onto settings of the run file, changes nothing here, has no counterpart (a value other than the usual
// one is named in the warning together with what happens instead), or would change what is trained in a way that does
// not exist here (a value other than the usual one is refused).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace plimsoll::config {

enum class Takes { flag, count, number, text, list, anything };
enum class Effect { mapped, harmless, missing, refused };

struct DeepSpeedKey {
  std::string_view path;   // "zero_optimization.stage"
  Takes takes;             // of a block: anything
  std::string_view usual;  // as JSON: DeepSpeed's default, with which nothing is different; empty: any value is
  Effect effect;
  std::string_view text;  // mapped: the settings; harmless: why; missing: what happens instead; refused: what to do
};

std::span<const DeepSpeedKey> deepspeed_keys();

// Older spellings and aliases: "bfloat16.enabled" is "bf16.enabled".
std::string canonical_deepspeed_path(std::string_view path);
const DeepSpeedKey* find_deepspeed_key(std::string_view path);
bool is_deepspeed_group(std::string_view path);

// "fp16": a block where DeepSpeed itself refuses keys it does not know. Elsewhere it passes over them.
bool is_strict_deepspeed_group(std::string_view path);

// The words directly below a block ("" = the top), for "did you mean".
std::vector<std::string> deepspeed_words_below(std::string_view group);

// Where the word stands in the table: "offload_optimizer" in "zero_optimization.offload_optimizer"; empty for nowhere and for several
// places.
std::string deepspeed_path_of_word(std::string_view word);

// A member with this name is DeepSpeed's, wherever it stands in a run file's top level. `optimizer` and `checkpoint`
// belong to both and are told apart by what is inside; `fp8` is the run file's.
bool is_deepspeed_top_key(std::string_view key);

}  // namespace plimsoll::config
