#include "train/generation/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "train/session/together.h"

namespace plimsoll::train {

namespace {

// Nothing where another place of the pipe axis has the head.
void read_row(const Session& session, std::string_view program, std::int64_t row, std::vector<float>& out) {
  const std::string name = program_buffer(program, "logits", 0);
  if (!session.buffers().has(name)) return;
  const base::TensorType& type = session.buffers().buffer(name).type;
  const std::int64_t width = type.shape[-1];
  out.resize(static_cast<std::size_t>(width));
  const std::byte* from = session.buffers().bytes(name, plan::Access::read) + row * width * base::size_of(type.dtype);
  const auto* words = reinterpret_cast<const std::uint16_t*>(from);
  switch (type.dtype) {
    case base::DType::f32: std::copy_n(reinterpret_cast<const float*>(from), width, out.begin()); return;
    case base::DType::bf16: std::transform(words, words + width, out.begin(), base::f32_from_bf16); return;
    case base::DType::f16: std::transform(words, words + width, out.begin(), base::f32_from_f16); return;
    default: PLIMSOLL_CHECK(false, "logits in {}", base::name_of(type.dtype));
  }
}

}  // namespace

std::int64_t forgotten_tokens(std::int64_t length, std::int64_t slots) {
  if (length <= slots) return 0;
  const std::int64_t half = std::max<std::int64_t>(1, slots / 2);
  return (length - slots + half - 1) / half * half;
}

CachedNextToken::CachedNextToken(Session& session) : session_(session), slots_(0) {
  PLIMSOLL_CHECK(session.decoding(), "the session has no cache of keys and values");
  slots_ = session.decoding()->slots;
}

// All but the last token, which goes through the decode program. Rows behind the end of the text are computed as well;
// what they leave in the cache lies behind every position that is read before it is written again.
void CachedNextToken::read_prompt(std::span<const std::int32_t> window) {
  const std::int64_t wanted = std::ssize(window) - 1;
  while (filled_ < wanted) {
    const std::span<std::int32_t> tokens = session_.input(kPrefill, "tokens", 0);
    const std::span<std::int32_t> positions = session_.input(kPrefill, "positions", 0);
    const std::int64_t rows = std::min(session_.decoding()->prompt_rows, wanted - filled_);
    std::fill(tokens.begin(), tokens.end(), 0);
    if (!tokens.empty()) std::copy_n(window.begin() + filled_, rows, tokens.begin());
    for (std::int64_t row = 0; row < std::ssize(positions); ++row) {
      positions[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(std::min(filled_ + row, slots_ - 1));
    }
    session_.prefill();
    filled_ += rows;
  }
}

std::span<const float> CachedNextToken::logits(std::span<const std::int32_t> text) {
  PLIMSOLL_CHECK(!text.empty(), "nothing to continue");
  const std::int64_t forgotten = forgotten_tokens(std::ssize(text), slots_);
  if (forgotten != forgotten_) filled_ = 0;
  forgotten_ = forgotten;
  const std::span<const std::int32_t> window = text.subspan(static_cast<std::size_t>(forgotten));
  read_prompt(window);
  // Places of the pipe axis read one, both or neither.
  for (std::int32_t& token : session_.input(kDecode, "tokens", 0)) token = window.back();
  for (std::int32_t& position : session_.input(kDecode, "positions", 0)) position = static_cast<std::int32_t>(window.size() - 1);
  session_.decode();
  filled_ = std::ssize(window);
  read_row(session_, kDecode, 0, logits_);
  return logits_;
}

WholeNextToken::WholeNextToken(Session& session) : session_(session) {}

std::span<const float> WholeNextToken::logits(std::span<const std::int32_t> text) {
  PLIMSOLL_CHECK(!text.empty(), "nothing to continue");
  const std::span<std::int32_t> tokens = session_.input(kInfer, "tokens", 0);
  const std::span<std::int32_t> positions = session_.input(kInfer, "positions", 0);
  const std::span<std::int32_t> segments = session_.input(kInfer, "segments", 0);
  const std::span<const std::int32_t> window =
      text.subspan(static_cast<std::size_t>(forgotten_tokens(std::ssize(text), std::ssize(tokens))));
  std::fill(tokens.begin(), tokens.end(), 0);
  std::copy(window.begin(), window.end(), tokens.begin());
  std::iota(positions.begin(), positions.end(), 0);
  std::fill(segments.begin(), segments.end(), 0);
  session_.infer();
  read_row(session_, kInfer, std::ssize(window) - 1, logits_);
  return logits_;
}

namespace {

// Of logits that are no numbers none is the greatest, and any token would do.
void check_finite(std::span<const float> logits, std::size_t tokens) {
  const auto found = std::find_if(logits.begin(), logits.end(), [](float value) { return !std::isfinite(value); });
  if (found == logits.end()) return;
  base::bad_input(
      "the model's answer to {} tokens is {} for token {}; expected finite numbers: its weights hold others, or are too large for the "
      "precision",
      tokens, *found, found - logits.begin());
}

}  // namespace

namespace {

// What the first rank that knows it says.
std::int64_t told(collectives::Group* everybody, std::int64_t own, std::int64_t nothing) {
  const std::vector<std::int64_t> all = tell_all(everybody, own);
  const auto found = std::find_if(all.begin(), all.end(), [&](std::int64_t number) { return number != nothing; });
  return found == all.end() ? nothing : *found;
}

}  // namespace

void generate(NextToken& next, std::vector<std::int32_t> text, std::int64_t count, const Sampling& sampling,
              const std::function<bool(std::int32_t)>& on_token, collectives::Group* everybody) {
  constexpr std::int64_t kNone = -1;
  for (std::int64_t made = 0; made < count; ++made) {
    const std::span<const float> logits = next.logits(text);
    check_finite(logits, text.size());
    const std::int64_t token = told(everybody, logits.empty() ? kNone : sample_token(logits, sampling, made), kNone);
    PLIMSOLL_CHECK(token != kNone, "no rank has made logits");
    text.push_back(static_cast<std::int32_t>(token));
    if (told(everybody, on_token(text.back()) ? 0 : 1, 0) != 0) return;
  }
}

}  // namespace plimsoll::train
