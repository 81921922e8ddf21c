// Text from a model, one token at a time.
//
// A model sees so many positions and no more. A text that reaches the end of them goes on all the same: the older half of
// the context is forgotten and the newer half is read again from position 0, once in half a context.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "collectives/group.h"
#include "train/generation/sampling.h"
#include "train/session/session.h"

namespace plimsoll::train {

// How many tokens at the beginning of a text of `length` are forgotten in a context of `slots`.
std::int64_t forgotten_tokens(std::int64_t length, std::int64_t slots);

// What comes after a text: the logits behind its last token. Each call gets the text of the last one with more behind.
class NextToken {
 public:
  virtual ~NextToken() = default;
  // Valid until the next call. Empty where other ranks have them; all ranks ask together.
  virtual std::span<const float> logits(std::span<const std::int32_t> text) = 0;
};

// By the decode and prefill programs: each token goes through the model once.
class CachedNextToken final : public NextToken {
 public:
  explicit CachedNextToken(Session& session);
  std::span<const float> logits(std::span<const std::int32_t> text) override;

 private:
  void read_prompt(std::span<const std::int32_t> window);

  Session& session_;
  std::int64_t slots_;
  std::int64_t forgotten_ = 0;
  std::int64_t filled_ = 0;  // positions of the cache
  std::vector<float> logits_;
};

// By the inference program: the whole text every time. What the cached one is checked against.
class WholeNextToken final : public NextToken {
 public:
  explicit WholeNextToken(Session& session);
  std::span<const float> logits(std::span<const std::int32_t> text) override;

 private:
  Session& session_;
  std::vector<float> logits_;
};

// Continues `text` by `count` tokens, handing on each as it is made; stops early when `on_token` returns false. All ranks of `everybody`
// write the same text, and stop when one of them wants to.
void generate(NextToken& next, std::vector<std::int32_t> text, std::int64_t count, const Sampling& sampling,
              const std::function<bool(std::int32_t)>& on_token, collectives::Group* everybody = nullptr);

}  // namespace plimsoll::train
