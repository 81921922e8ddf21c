// JSON as a tree that remembers where everything was written.
//
// A run file is read by people, so an error must point at its line and column; no library at hand keeps them. A value
// holds the offset of its first character and a share of the source text; line, column and path ("optimizer.betas[1]")
// are worked out from those only when somebody asks, so that remembering costs one offset per value.
//
// The relaxed form takes comments (//, /* */, #) and trailing commas, as people write in run files. The strict form is
// RFC 8259. HJSON (hjson.github.io) is the relaxed form that also needs no quotes, no commas and no outermost braces: a
// text without quotes goes to the end of its line. All refuse what readers disagree on: duplicate keys, invalid UTF-8,
// lone surrogates, numbers outside f64.
//
//   Json run = parse_json(text, "run.json");
//   double lr = run.at("optimizer").at("lr").as_double();   // throws "run.json:3:27: found "x" for "optimizer.lr", expected a number"
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace plimsoll::base {

struct JsonOptions {
  bool strict = false;
  bool hjson = false;  // instead of strict; without strings of several lines (''')
  std::size_t max_bytes = std::size_t{64} << 20;
  int max_depth = 64;     // parsing, writing and destroying recurse this deep at most
  bool one_line = false;  // the text is a single setting: where() is its name alone, without line and column
};

// Counted from 1, columns in characters; 0:0 for a value that was not read from a text.
struct JsonPosition {
  std::uint32_t line = 0;
  std::uint32_t column = 0;

  auto operator<=>(const JsonPosition&) const = default;
};

class Json;
struct JsonMember;

// Members in the order they were written. Small objects are searched from the front; large ones through a hash table.
class JsonObject {
 public:
  JsonObject();
  JsonObject(const JsonObject&);
  JsonObject(JsonObject&&) noexcept;
  JsonObject& operator=(const JsonObject&);
  JsonObject& operator=(JsonObject&&) noexcept;
  ~JsonObject();

  std::size_t size() const;
  bool empty() const { return size() == 0; }
  const JsonMember* begin() const;
  const JsonMember* end() const;
  const JsonMember* find(std::string_view key) const;  // nullptr when absent
  JsonMember* find(std::string_view key);
  JsonMember& add(std::string key, Json value, std::uint32_t key_offset = 0);  // the key must be new
  bool operator==(const JsonObject& other) const;

 private:
  std::size_t slot_of(std::string_view key) const;
  void rebuild_table();

  std::vector<JsonMember> members_;
  std::vector<std::uint32_t> table_;  // member index + 1, by open addressing; empty while the object is small
};

class Json {
 public:
  enum class Kind { null, boolean, integer, number, string, array, object };
  using Array = std::vector<Json>;
  struct Source {
    std::string name;
    std::string text;
    bool one_line = false;
    bool hjson = false;
  };

  Json() = default;
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(std::integral auto value) : value_(static_cast<std::int64_t>(value)) {}
  Json(double value) : value_(value) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(JsonObject value) : value_(std::move(value)) {}
  static Json array(std::initializer_list<Json> items = {}) { return Json(Array(items)); }
  static Json object(std::initializer_list<std::pair<std::string, Json>> members = {});

  Kind kind() const { return static_cast<Kind>(value_.index()); }
  bool is_null() const { return kind() == Kind::null; }
  bool is_bool() const { return kind() == Kind::boolean; }
  bool is_integer() const;  // 500 and also 5e8: a number without a fraction, within 64 bits
  bool is_number() const { return kind() == Kind::integer || kind() == Kind::number; }
  bool is_string() const { return kind() == Kind::string; }
  bool is_array() const { return kind() == Kind::array; }
  bool is_object() const { return kind() == Kind::object; }

  // Each throws bad_input, with place, path and what was found, when the value is of another kind.
  bool as_bool() const;
  std::int64_t as_integer() const;
  double as_double() const;
  const std::string& as_string() const;
  const Array& as_array() const;
  const JsonObject& as_object() const;

  const Json* find(std::string_view key) const;  // nullptr when absent
  const Json& at(std::string_view key) const;    // throws when absent
  const Json& at(std::size_t index) const;       // of an array; throws when out of range
  std::size_t size() const;                      // of an array or object

  Json& set(std::string_view key, Json value);  // adds or replaces; a null becomes an object first
  Json& push(Json value);                       // appends; a null becomes an array first
  Array& items() { return std::get<Array>(value_); }
  JsonObject& members() { return std::get<JsonObject>(value_); }

  // The same value, as if it had been written where `other` was.
  Json placed_as(const Json& other) const;
  JsonPosition position() const;
  std::string path() const;                               // "model.rope.theta", "strategy.stages[2]"; empty at the top and in HJSON
  std::string where() const;                              // "run.json:3:12"; empty when not read from a text
  std::string where_key(const JsonMember& member) const;  // of a member of this object
  std::string describe() const;                           // what was found, for messages: "12", "\"abc\"", "an array of 3"
  [[noreturn]] void fail_expected(std::string_view expected) const;

  // Compares content; places do not matter.
  bool operator==(const Json& other) const { return value_ == other.value_; }

 private:
  friend class JsonParser;

  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, JsonObject> value_;
  std::uint32_t offset_ = 0;
  std::shared_ptr<const Source> source_;
};

struct JsonMember {
  std::string key;
  std::uint32_t key_offset = 0;
  Json value;

  bool operator==(const JsonMember& other) const { return key == other.key && value == other.value; }
};

// `name` is what messages call the text: a file's path. Throws bad_input "NAME:LINE:COL: found ..., expected ...".
Json parse_json(std::string_view text, std::string_view name, const JsonOptions& options = {});

enum class JsonLayout { compact, pretty };

// Doubles in the shortest form that reads back to the same bits; NaN and infinities, which JSON lacks, become null.
std::string write_json(const Json& value, JsonLayout layout = JsonLayout::compact);
std::string quote_json(std::string_view text);

}  // namespace plimsoll::base
