// DeepSpeed's JSON as a source of settings: read beside or inside a run file, every key accounted for.
//
// What a key says goes through the same table of fields as the run file (fields.h), so ranges, messages and `explain`
// are the same; its origin is the place in the DeepSpeed file and the key there. A setting that the run file or --set
// gives as well must agree; --set wins. "auto" leaves a key to the run file, as DeepSpeed leaves it to its caller.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/json.h"
#include "config/problems.h"
#include "config/run.h"
#include "ops/optim/rule.h"

namespace plimsoll::config {

// The keys as given, by their canonical path, and what they become in the run. One file per part of the translation:
// deepspeed.cpp (precision, degrees, activations), deepspeed_optimizer.cpp, deepspeed_batch.cpp, deepspeed_zero.cpp.
class DeepSpeedTranslation {
 public:
  // Checks every key of the document. Problems are what DeepSpeed refuses as well, and what cannot be trained here.
  DeepSpeedTranslation(const base::Json& document, Run& run, Problems& problems);
  void translate();

 private:
  // Before the keys are looked at: those of a rule that does not exist here would be called unknown, so they are passed over.
  void refuse_foreign_types(const base::Json& document);
  void walk(const base::Json& object, const std::string& group);
  void visit(const base::JsonMember& member, const std::string& group);
  void take(const base::Json& value, const std::string& path, const std::string& written);
  void unknown(const base::JsonMember& member, const std::string& group, const std::string& key);

  const base::Json* given(std::string_view path) const;  // nullptr: absent, null or "auto"
  bool flag(std::string_view path, bool otherwise = false) const;
  double number(std::string_view path, double otherwise) const;
  std::int64_t count(std::string_view path, std::int64_t otherwise) const;

  // Puts a value into a setting, or notes why it cannot. `path` is the key it came from.
  void assign(std::string_view setting, const base::Json& value, std::string_view path);
  // DeepSpeed's own default, for a setting that nobody gave; none when `path` is "auto".
  void assume(std::string_view setting, const base::Json& value, std::string_view path);
  void agree_or_read(std::string_view setting, const base::Json& value, std::string_view path);
  void derive(std::string_view setting, const base::Json& value, std::string_view why);
  void read(std::string_view setting, const base::Json& value, const base::Json& found, std::string_view path);
  // What else there is to say about a key; `differs`: name it in the warning.
  void note(std::string_view path, std::string outcome, bool differs);

  void precision();
  void loss_scale();
  void zero();
  void offload(std::string_view block, std::string_view setting, std::string_view old_flag);
  void offload_weights(std::int64_t stage);
  void keep_state_with_weights(std::string_view path);
  void shard_groups(std::int64_t stage);
  void communication(std::int64_t stage);
  void one_disk();
  void activations();
  void split_activations(std::string_view path);
  void degrees();
  void optimizer();
  void optimizer_params(const ops::UpdateRule& rule);
  void scheduler();
  void peak_rate(const base::Json& value, std::string_view path);  // a scheduler overrules the optimizer's rate
  void usual_decay_peak();
  void warmup(std::string_view type);
  void cycle();
  void range_test();
  void batch();

  Run& run_;
  Problems& problems_;
  std::set<std::string, std::less<>> foreign_;  // blocks of a type that does not exist here
  std::map<std::string, const base::Json*, std::less<>> values_;
  std::deque<base::Json> converted_;              // values that were written as another type
  std::set<std::string, std::less<>> left_open_;  // given as "auto"
};

// Moves the keys that are DeepSpeed's out of a run file's document and returns them; an empty object when there are none.
base::Json take_deepspeed_keys(base::Json& document);

}  // namespace plimsoll::config
