#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "base/error.h"

namespace plimsoll::base {

namespace {

constexpr std::size_t kLinearSearchLimit = 16;

// Walks a text that has already been parsed up to `target` and says which value starts there.
class PathFinder {
 public:
  explicit PathFinder(std::string_view text) : text_(text) {}

  std::string path_at(std::size_t target) {
    while (at_ < target && at_ < text_.size()) step();
    std::string path;
    for (const Frame& frame : frames_) {
      if (!frame.object) {
        path += fmt::format("[{}]", frame.index);
      } else if (!frame.key_next) {
        if (!path.empty()) path += '.';
        path += frame.key;
      }
    }
    return path;
  }

 private:
  struct Frame {
    bool object = false;
    bool key_next = false;
    std::size_t index = 0;
    std::string_view key = {};
  };

  void step() {
    switch (text_[at_]) {
      case '"': string(); return;
      case '#': skip_past("\n", at_ + 1); return;
      case '/': skip_past(text_.substr(at_, 2) == "//" ? "\n" : "*/", at_ + 2); return;
      case '{': frames_.push_back({.object = true, .key_next = true}); break;
      case '[': frames_.push_back({}); break;
      case '}':
      case ']': frames_.pop_back(); break;
      case ',':
        ++frames_.back().index;
        frames_.back().key_next = frames_.back().object;
        break;
      default: break;
    }
    ++at_;
  }

  void string() {
    const std::size_t first = ++at_;
    while (text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    if (!frames_.empty() && frames_.back().key_next) {
      frames_.back().key = text_.substr(first, at_ - first);
      frames_.back().key_next = false;
    }
    ++at_;
  }

  void skip_past(std::string_view end, std::size_t from) {
    const std::size_t found = text_.find(end, from);
    at_ = found == std::string_view::npos ? text_.size() : found + end.size();
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<Frame> frames_;
};

JsonPosition position_in(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const std::size_t newline = before.rfind('\n');
  const std::string_view line = newline == std::string_view::npos ? before : before.substr(newline + 1);
  const auto is_character_start = [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; };
  return {.line = static_cast<std::uint32_t>(1 + std::count(before.begin(), before.end(), '\n')),
          .column = static_cast<std::uint32_t>(1 + std::count_if(line.begin(), line.end(), is_character_start))};
}

std::string place(const Json::Source& source, std::size_t offset) {
  if (source.one_line) return source.name;
  const JsonPosition position = position_in(source.text, offset);
  return fmt::format("{}:{}:{}", source.name, position.line, position.column);
}

bool fits_integer(double value) { return value == std::trunc(value) && std::abs(value) < 0x1p63; }

}  // namespace

JsonObject::JsonObject() = default;
JsonObject::JsonObject(const JsonObject&) = default;
JsonObject::JsonObject(JsonObject&&) noexcept = default;
JsonObject& JsonObject::operator=(const JsonObject&) = default;
JsonObject& JsonObject::operator=(JsonObject&&) noexcept = default;
JsonObject::~JsonObject() = default;

std::size_t JsonObject::size() const { return members_.size(); }
const JsonMember* JsonObject::begin() const { return members_.data(); }
const JsonMember* JsonObject::end() const { return members_.data() + members_.size(); }
bool JsonObject::operator==(const JsonObject& other) const { return members_ == other.members_; }

std::size_t JsonObject::slot_of(std::string_view key) const {
  const std::size_t mask = table_.size() - 1;
  std::size_t slot = std::hash<std::string_view>{}(key)&mask;
  while (table_[slot] != 0 && members_[table_[slot] - 1].key != key) slot = (slot + 1) & mask;
  return slot;
}

void JsonObject::rebuild_table() {
  table_.assign(std::max<std::size_t>(64, table_.size() * 4), 0);
  for (std::size_t i = 0; i < members_.size(); ++i) table_[slot_of(members_[i].key)] = static_cast<std::uint32_t>(i + 1);
}

const JsonMember* JsonObject::find(std::string_view key) const {
  if (!table_.empty()) {
    const std::uint32_t index = table_[slot_of(key)];
    return index == 0 ? nullptr : &members_[index - 1];
  }
  for (const JsonMember& member : members_) {
    if (member.key == key) return &member;
  }
  return nullptr;
}

JsonMember* JsonObject::find(std::string_view key) { return const_cast<JsonMember*>(std::as_const(*this).find(key)); }

JsonMember& JsonObject::add(std::string key, Json value, std::uint32_t key_offset) {
  members_.push_back({.key = std::move(key), .key_offset = key_offset, .value = std::move(value)});
  if (members_.size() > kLinearSearchLimit) {
    if (members_.size() * 2 > table_.size()) {
      rebuild_table();
    } else {
      table_[slot_of(members_.back().key)] = static_cast<std::uint32_t>(members_.size());
    }
  }
  return members_.back();
}

Json Json::object(std::initializer_list<std::pair<std::string, Json>> members) {
  JsonObject object;
  for (const auto& [key, value] : members) object.add(key, value);
  return Json(std::move(object));
}

bool Json::is_integer() const {
  if (kind() == Kind::integer) return true;
  return kind() == Kind::number && fits_integer(std::get<double>(value_));
}

bool Json::as_bool() const {
  if (!is_bool()) fail_expected("true or false");
  return std::get<bool>(value_);
}

std::int64_t Json::as_integer() const {
  if (!is_integer()) fail_expected("an integer");
  if (kind() == Kind::integer) return std::get<std::int64_t>(value_);
  return static_cast<std::int64_t>(std::get<double>(value_));
}

double Json::as_double() const {
  if (!is_number()) fail_expected("a number");
  if (kind() == Kind::integer) return static_cast<double>(std::get<std::int64_t>(value_));
  return std::get<double>(value_);
}

const std::string& Json::as_string() const {
  if (!is_string()) fail_expected("a string");
  return std::get<std::string>(value_);
}

const Json::Array& Json::as_array() const {
  if (!is_array()) fail_expected("an array");
  return std::get<Array>(value_);
}

const JsonObject& Json::as_object() const {
  if (!is_object()) fail_expected("an object");
  return std::get<JsonObject>(value_);
}

const Json* Json::find(std::string_view key) const {
  const JsonMember* member = as_object().find(key);
  return member == nullptr ? nullptr : &member->value;
}

const Json& Json::at(std::string_view key) const {
  if (const Json* value = find(key)) return *value;
  fail_expected(fmt::format("it to have the key \"{}\"", key));
}

const Json& Json::at(std::size_t index) const {
  if (index >= as_array().size()) fail_expected(fmt::format("at least {} items", index + 1));
  return as_array()[index];
}

std::size_t Json::size() const {
  if (is_array()) return std::get<Array>(value_).size();
  return as_object().size();
}

Json& Json::set(std::string_view key, Json value) {
  if (is_null()) value_ = JsonObject();
  JsonObject& object = std::get<JsonObject>(value_);
  if (JsonMember* member = object.find(key)) return member->value = std::move(value);
  return object.add(std::string(key), std::move(value)).value;
}

Json& Json::push(Json value) {
  if (is_null()) value_ = Array();
  return std::get<Array>(value_).emplace_back(std::move(value));
}

Json Json::placed_as(const Json& other) const {
  Json placed = *this;
  placed.offset_ = other.offset_;
  placed.source_ = other.source_;
  return placed;
}

JsonPosition Json::position() const { return source_ ? position_in(source_->text, offset_) : JsonPosition{}; }

std::string Json::path() const {
  return source_ && !source_->hjson ? PathFinder(source_->text).path_at(offset_) : std::string();  // which needs quotes and commas
}

std::string Json::where() const { return source_ ? place(*source_, offset_) : std::string(); }

std::string Json::where_key(const JsonMember& member) const {
  // A member that was set by hand has no key in the text; its value knows better where it came from.
  if (!source_ || member.value.source_ != source_) return member.value.where();
  return place(*source_, member.key_offset);
}

std::string Json::describe() const {
  constexpr std::size_t kLongest = 40;
  switch (kind()) {
    case Kind::string: {
      std::string_view text = as_string();
      if (text.size() <= kLongest) return quote_json(text);
      std::size_t length = kLongest;
      while ((static_cast<unsigned char>(text[length]) & 0xC0u) == 0x80u) --length;
      return quote_json(text.substr(0, length)) + "...";
    }
    case Kind::array: return fmt::format("an array of {}", size());
    case Kind::object: return size() == 0 ? "an empty object" : "an object";
    default: return write_json(*this);
  }
}

void Json::fail_expected(std::string_view expected) const {
  const std::string at = where();
  const std::string name = path();
  bad_input("{}found {}{}, expected {}", at.empty() ? at : at + ": ", describe(), name.empty() ? name : fmt::format(" for \"{}\"", name),
            expected);
}

}  // namespace plimsoll::base
