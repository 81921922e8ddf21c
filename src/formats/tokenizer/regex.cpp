#include "formats/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "base/error.h"
#include "formats/tokenizer/pool.h"
#include "formats/tokenizer/utf8.h"

namespace plimsoll::formats::tokenizer {

namespace {

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

template <typename T>
using Owned = std::unique_ptr<T, Free>;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

// What one thread needs to match; costly enough to be kept.
struct Matcher {
  explicit Matcher(const pcre2_code* code)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(32 << 10, 8 << 20, nullptr)) {
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    pcre2_set_heap_limit(context.get(), 64 << 10);    // KiB
    pcre2_set_match_limit(context.get(), 1'000'000);  // no sensible pattern comes near it
  }

  Owned<pcre2_match_data> data;
  Owned<pcre2_match_context> context;
  Owned<pcre2_jit_stack> stack;
};

struct Regex::Program {
  explicit Program(Owned<pcre2_code> owned) : code(std::move(owned)) {}

  Owned<pcre2_code> code;
  Pool<Matcher> matchers = {};
};

Regex::Regex(const std::string& expression, const std::string& where) : where_(where) {
  const std::string rewritten = rewrite_for_pcre(expression, where);
  const Owned<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  std::size_t offset = 0;
  // In Ruby's syntax ^ and $ are always those of lines.
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten.data()), rewritten.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context.get());
  if (code == nullptr) base::bad_input("{}: the pattern {} cannot be run: {}", where, expression.substr(0, 200), message_of(error));
  program_ = std::make_unique<Program>(Owned<pcre2_code>(code));
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it matching is slower and gives the same
}

Regex::~Regex() = default;

void Regex::find(std::string_view text, std::vector<Range>& matches) const {
  const pcre2_code* code = program_->code.get();
  const Pool<Matcher>::Lease lease = program_->matchers.take([code] { return std::make_unique<Matcher>(code); });
  const Matcher& matcher = *lease;
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(matcher.data.get());
  std::size_t last_end = std::string_view::npos;
  for (std::size_t at = 0; at <= text.size();) {
    const int result = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, PCRE2_NO_UTF_CHECK, matcher.data.get(),
                                   matcher.context.get());
    if (result == PCRE2_ERROR_NOMATCH) return;
    if (result < 0)
      base::bad_input("{}: the pattern cannot be matched against a text of {} bytes: {}", where_, text.size(), message_of(result));
    if (found[1] < found[0]) base::bad_input("{}: the pattern sets the end of a match before its beginning", where_);
    // An empty match right behind another one does not count, and the search goes on behind the next character.
    if (found[1] == found[0] && found[1] == last_end) {
      at += at < text.size() ? length_of(text[at]) : 1;
      continue;
    }
    matches.push_back({found[0], found[1]});
    at = last_end = found[1];
  }
}

}  // namespace plimsoll::formats::tokenizer
