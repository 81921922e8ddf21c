// The name of a buffer or the label of a call. Plans of long pipelines have millions of them, most alike but for the number of the
// micro-batch: those share one text, and "blocks.3.forward@17" is put together when somebody reads it.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace plimsoll::plan {

class Name {
 public:
  Name() = default;
  Name(const Name& other) : text_(other.text_), number_(other.number_) {
    if (text_ != nullptr) text_->uses.fetch_add(1, std::memory_order_relaxed);
  }
  Name(Name&& other) noexcept : text_(std::exchange(other.text_, nullptr)), number_(std::exchange(other.number_, -1)) {}
  Name& operator=(Name other) noexcept {
    std::swap(text_, other.text_);
    std::swap(number_, other.number_);
    return *this;
  }
  ~Name() {
    if (text_ != nullptr && text_->uses.fetch_sub(1, std::memory_order_acq_rel) == 1) delete text_;
  }
  // NOLINTBEGIN(google-explicit-constructor): it stands for the text
  Name(std::string text) : text_(text.empty() ? nullptr : new Text{.text = std::move(text)}) {}
  Name(std::string_view text) : Name(std::string(text)) {}
  Name(const char* text) : Name(std::string(text)) {}
  operator std::string() const { return text(); }
  // NOLINTEND(google-explicit-constructor)

  // "name@number".
  Name numbered(std::size_t number) const {
    Name one = number_ < 0 ? *this : Name(text());
    one.number_ = static_cast<std::int32_t>(number);
    return one;
  }

  std::string text() const {
    if (number_ < 0) return text_ == nullptr ? std::string() : text_->text;
    const fmt::format_int digits(number_);
    std::string whole;
    const std::string_view first = text_ == nullptr ? std::string_view() : std::string_view(text_->text);
    whole.reserve(first.size() + 1 + digits.size());
    return whole.append(first).append(1, '@').append(digits.data(), digits.size());
  }
  bool empty() const { return text_ == nullptr && number_ < 0; }
  bool starts_with(std::string_view head) const { return text().starts_with(head); }
  bool ends_with(std::string_view tail) const { return text().ends_with(tail); }

  friend bool operator==(const Name& a, const Name& b) { return (a.text_ == b.text_ && a.number_ == b.number_) || a.text() == b.text(); }
  template <std::convertible_to<std::string_view> Text>
  friend bool operator==(const Name& a, const Text& b) {
    return a.text() == std::string_view(b);
  }
  friend std::string operator+(std::string head, const Name& tail) { return std::move(head) + tail.text(); }
  friend std::string operator+(const Name& head, std::string_view tail) { return head.text().append(tail); }
  friend std::ostream& operator<<(std::ostream& out, const Name& name) { return out << name.text(); }

 private:
  // Counted by itself: with a std::shared_ptr a name would be half as large again.
  struct Text {
    std::string text;
    std::atomic<std::int32_t> uses{1};
  };
  Text* text_ = nullptr;      // null: empty
  std::int32_t number_ = -1;  // none
};

}  // namespace plimsoll::plan

template <>
struct fmt::formatter<plimsoll::plan::Name> : fmt::formatter<std::string_view> {
  template <typename Context>
  auto format(const plimsoll::plan::Name& name, Context& context) const {
    return fmt::formatter<std::string_view>::format(name.text(), context);
  }
};
