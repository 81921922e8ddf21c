// What a run's tokenizer decides about the model and the data, and where given values say otherwise.
#include <fmt/format.h>

#include "base/error.h"
#include "config/config.h"
#include "config/derive.h"

namespace plimsoll::config {

namespace {

class FromTokenizer {
 public:
  FromTokenizer(Run& run, const TokenizerFacts& tokenizer) : run_(run), tokenizer_(tokenizer) {}

  void vocabulary() {
    if (!tokenizer_.vocab || !run_.model_path.empty()) return;
    const std::int64_t needed = *tokenizer_.vocab;
    if (!run_.given("model.vocab")) return set("model.vocab", run_.model.vocab, needed);
    if (run_.model.vocab < needed) {
      base::bad_input(
          "{}: found {} for \"model.vocab\", but the tokenizer {} has {} tokens; expected at least as many, or nothing: then it is the "
          "tokenizer's",
          run_.where("model.vocab"), run_.model.vocab, tokenizer_.name, needed);
    }
    if (run_.model.vocab > needed) {
      note("model.vocab = {} ({}), but the tokenizer {} has {} tokens: {} rows of the table are never read", run_.model.vocab,
           run_.where("model.vocab"), tokenizer_.name, needed, run_.model.vocab - needed);
    }
  }

  // What pads and also ends a text must be trained: as a pad token it would not be.
  void pad() {
    if (!run_.model.family->has("pad_token") || !run_.model_path.empty()) return;
    if (!tokenizer_.pad || tokenizer_.pad == tokenizer_.end) return;
    token("model.pad_token", run_.model.pad_token, *tokenizer_.pad, "pad");
  }

  void mask() {
    if (!run_.model.family->masks()) return;
    if (tokenizer_.mask) return token("mlm.mask_token", run_.mlm.mask_token, *tokenizer_.mask, "mask");
    if (!run_.given("mlm.mask_token")) run_.mlm.mask_token = Mlm::kNone;  // refused where one is needed
  }

  void document_end() {
    if (!run_.data.mask_documents || !tokenizer_.end) return;
    token("data.document_end", run_.data.document_end, *tokenizer_.end, "end");
  }

 private:
  template <typename... Arguments>
  void note(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    run_.notes.push_back(fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  void set(const char* key, std::int64_t& place, std::int64_t value) {
    place = value;
    run_.origins[key] = {.kind = OriginKind::tokenizer, .text = fmt::format("tokenizer {}", tokenizer_.name)};
  }

  void token(const char* key, std::int64_t& place, std::int32_t value, std::string_view part) {
    if (!run_.given(key)) return set(key, place, value);
    if (place != value)
      note("{} = {} ({}), but the tokenizer {} has {} as its {} token", key, place, run_.where(key), tokenizer_.name, value, part);
  }

  Run& run_;
  const TokenizerFacts& tokenizer_;
};

}  // namespace

void resolve_tokenizer(Run& run, const TokenizerFacts& tokenizer) {
  FromTokenizer from(run, tokenizer);
  from.vocabulary();
  from.pad();
  from.mask();
  from.document_end();
  check(run);
}

}  // namespace plimsoll::config
