// The writer of json.h. Pretty layout keeps arrays of plain values on one line: [0.9, 0.95].
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/json.h"

namespace plimsoll::base {

namespace {

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20u || c == 0x7F) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

class Writer {
 public:
  explicit Writer(JsonLayout layout) : pretty_(layout == JsonLayout::pretty) {}

  std::string write(const Json& value) {
    put(value, 0);
    return std::move(out_);
  }

 private:
  void put(const Json& value, int depth) {
    switch (value.kind()) {
      case Json::Kind::null: out_ += "null"; break;
      case Json::Kind::boolean: out_ += value.as_bool() ? "true" : "false"; break;
      case Json::Kind::integer: fmt::format_to(std::back_inserter(out_), "{}", value.as_integer()); break;
      case Json::Kind::number: put_double(value.as_double()); break;
      case Json::Kind::string: append_quoted(out_, value.as_string()); break;
      case Json::Kind::array: put_array(value.as_array(), depth); break;
      case Json::Kind::object: put_object(value.as_object(), depth); break;
    }
  }

  // fmt writes the shortest digits that read back; a whole double keeps a fraction or exponent, so that it stays one.
  void put_double(double value) {
    if (!std::isfinite(value)) {
      out_ += "null";
      return;
    }
    std::string digits = fmt::format("{}", value);
    const std::size_t exponent = digits.find('e');
    if (exponent != std::string::npos && digits[exponent + 2] == '0') digits.erase(exponent + 2, 1);  // 1e-05 -> 1e-5
    if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
    out_ += digits;
  }

  void put_array(const Json::Array& items, int depth) {
    const bool flat = std::none_of(items.begin(), items.end(), [](const Json& item) { return item.is_array() || item.is_object(); });
    const bool lines = pretty_ && !flat;
    out_ += '[';
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += pretty_ && !lines ? ", " : ",";
      if (lines) new_line(depth + 1);
      put(items[i], depth + 1);
    }
    if (lines) new_line(depth);
    out_ += ']';
  }

  void put_object(const JsonObject& object, int depth) {
    out_ += '{';
    bool first = true;
    for (const JsonMember& member : object) {
      if (!first) out_ += ',';
      first = false;
      if (pretty_) new_line(depth + 1);
      append_quoted(out_, member.key);
      out_ += pretty_ ? ": " : ":";
      put(member.value, depth + 1);
    }
    if (pretty_ && !object.empty()) new_line(depth);
    out_ += '}';
  }

  void new_line(int depth) {
    out_ += '\n';
    out_.append(static_cast<std::size_t>(2 * depth), ' ');
  }

  bool pretty_;
  std::string out_;
};

}  // namespace

std::string write_json(const Json& value, JsonLayout layout) { return Writer(layout).write(value); }

std::string quote_json(std::string_view text) {
  std::string out;
  append_quoted(out, text);
  return out;
}

}  // namespace plimsoll::base
