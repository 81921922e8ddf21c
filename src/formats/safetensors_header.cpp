#include "formats/safetensors_header.h"

#include <set>

#include "base/error.h"
#include "base/json.h"

namespace plimsoll::formats {

namespace {

using base::Json;

constexpr std::string_view kMetadata = "__metadata__";
constexpr std::size_t kMaxEntryBytes = std::size_t{64} << 10;     // of one tensor: a name, a type, some numbers
constexpr std::size_t kMaxMetadataBytes = std::size_t{16} << 20;  // of all metadata

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

std::string_view without_space(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// Length of the first member in `text`: up to the comma that follows it outside of strings and brackets, or to the end.
// Whether the member is well-formed is for the parser to say; whatever is wrong in it stays inside it.
std::size_t member_length(std::string_view text) {
  bool in_string = false;
  std::int64_t depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c == ',' && depth == 0) return at;
  }
  return text.size();
}

// JSON's 2.0 and 2e0 are no integers here: the reference reader refuses them.
std::int64_t read_count(const Json& value) {
  if (value.kind() != Json::Kind::integer || value.as_integer() < 0) value.fail_expected("a whole number of at least 0");
  return value.as_integer();
}

HeaderEntry read_entry(const std::string& name, const Json& json) {
  HeaderEntry entry{.spec = {.name = name}};
  const Json& dtype = json.at("dtype");
  const auto known = file_dtype_from_name(dtype.as_string());
  if (!known) dtype.fail_expected("a type that safetensors defines, such as F32 or BF16");
  entry.spec.dtype = *known;
  for (const Json& extent : json.at("shape").as_array()) entry.spec.shape.push_back(read_count(extent));
  const Json& offsets = json.at("data_offsets");
  if (offsets.as_array().size() != 2) offsets.fail_expected("[begin, end]");
  entry.begin = read_count(offsets.at(0));
  entry.end = read_count(offsets.at(1));
  return entry;
}

std::map<std::string, std::string> read_metadata(const Json& json) {
  std::map<std::string, std::string> metadata;
  if (json.is_null()) return metadata;
  for (const base::JsonMember& member : json.as_object()) metadata.emplace(member.key, member.value.as_string());
  return metadata;
}

class HeaderReader {
 public:
  explicit HeaderReader(const std::string& file) : file_(file), where_(file + " (header)") {}

  SafetensorsHeader read(std::string_view text) {
    text = without_space(text);
    if (!text.starts_with('{') || !text.ends_with('}') || text.size() < 2) fail(text);
    text = without_space(text.substr(1, text.size() - 2));
    while (!text.empty()) {
      const std::size_t length = member_length(text);
      add_member(text.substr(0, length));
      if (length == text.size()) break;
      text.remove_prefix(length + 1);
      if (without_space(text).empty())
        base::bad_input("'{}': found a ',' at the end of the header, expected another tensor after it", file_);
    }
    return std::move(header_);
  }

 private:
  // The parser says what is wrong with a header that is no object; it looks at the beginning only.
  [[noreturn]] void fail(std::string_view text) const {
    constexpr std::size_t kShown = 1000;
    if (!text.starts_with('{')) base::parse_json(text.substr(0, kShown), where_, {.strict = true}).as_object();
    base::bad_input("'{}': the header does not end with '}}'; the file is damaged or no safetensors file", file_);
  }

  void add_member(std::string_view text) {
    const bool metadata = without_space(text).starts_with("\"__metadata__\"");
    const std::size_t limit = metadata ? kMaxMetadataBytes : kMaxEntryBytes;
    if (text.size() > limit) base::bad_input("'{}': one entry of the header has {} bytes, expected at most {}", file_, text.size(), limit);
    const Json json = base::parse_json(fmt::format("{{{}}}", text), where_, {.strict = true});
    // Anything but one member: an empty place between two commas, or brackets that close more than they open.
    if (json.as_object().size() != 1) base::bad_input("'{}': found no tensor between two ',' of the header", file_);
    const base::JsonMember& member = *json.as_object().begin();
    if (!names_.insert(member.key).second) {
      base::bad_input("'{}': the header has the key {} a second time, expected each once", file_, base::quote_json(member.key));
    }
    if (member.key == kMetadata) {
      header_.metadata = read_metadata(member.value);
    } else {
      header_.entries.push_back(read_entry(member.key, member.value));
    }
  }

  const std::string& file_;
  std::string where_;
  std::set<std::string> names_;
  SafetensorsHeader header_;
};

}  // namespace

SafetensorsHeader read_safetensors_header(std::string_view text, const std::string& file) { return HeaderReader(file).read(text); }

}  // namespace plimsoll::formats
