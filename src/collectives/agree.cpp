#include "collectives/agree.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace plimsoll::collectives {

namespace {

constexpr std::size_t kShown = 60;  // characters of a value in a message

void append(std::vector<std::byte>& bytes, const std::string& text) {
  const std::uint64_t length = text.size();
  const auto* raw = reinterpret_cast<const std::byte*>(&length);
  bytes.insert(bytes.end(), raw, raw + sizeof length);
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  bytes.insert(bytes.end(), begin, begin + text.size());
}

std::vector<std::byte> packed(const std::vector<Field>& fields) {
  std::vector<std::byte> bytes;
  for (const Field& field : fields) {
    append(bytes, field.name);
    append(bytes, field.value);
  }
  return bytes;
}

std::string take(Input& bytes) {
  std::uint64_t length = 0;
  PLIMSOLL_CHECK(bytes.size() >= sizeof length, "a handshake ends within a length");
  std::memcpy(&length, bytes.data(), sizeof length);
  bytes = bytes.subspan(sizeof length);
  PLIMSOLL_CHECK(length <= bytes.size(), "a handshake ends within a text");
  std::string text(reinterpret_cast<const char*>(bytes.data()), length);
  bytes = bytes.subspan(length);
  return text;
}

std::vector<Field> unpacked(Input bytes) {
  std::vector<Field> fields;
  while (!bytes.empty()) {
    std::string name = take(bytes);
    fields.push_back({std::move(name), take(bytes)});
  }
  return fields;
}

// What every member says, in member order.
std::vector<std::vector<Field>> exchange(Group& group, const std::vector<Field>& fields) {
  const std::vector<std::byte> own = packed(fields);
  const auto members = static_cast<std::size_t>(group.size());
  const std::vector<std::int64_t> ones(members, 1);
  std::vector<std::int64_t> sizes(members);
  const std::int64_t size = static_cast<std::int64_t>(own.size());
  group.all_gather(std::as_bytes(std::span(&size, 1)), std::as_writable_bytes(std::span(sizes)), ones, base::DType::i64);
  std::vector<std::byte> all(static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0})));
  group.all_gather(own, all, sizes, base::DType::u8);
  std::vector<std::vector<Field>> said;
  Input rest = all;
  for (const std::int64_t bytes : sizes) {
    said.push_back(unpacked(rest.first(static_cast<std::size_t>(bytes))));
    rest = rest.subspan(static_cast<std::size_t>(bytes));
  }
  return said;
}

std::string value_of(const std::vector<Field>& fields, const std::string& name) {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const Field& field) { return field.name == name; });
  return found == fields.end() ? "(not given)" : found->value;
}

// The values from where they begin to differ, so that two long ones can be told apart.
std::string shown(const std::string& value, std::size_t from) {
  const std::size_t begin = from > kShown / 2 ? from - kShown / 2 : 0;
  const bool cut = value.size() > begin + kShown;
  return fmt::format("{}{}{}", begin > 0 ? "..." : "", value.substr(std::min(begin, value.size()), kShown), cut ? "..." : "");
}

std::string difference(const Group& group, const std::string& name, const std::vector<std::string>& values) {
  std::map<std::string, std::vector<int>> ranks_with;
  std::size_t equal = values.front().size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    ranks_with[values[i]].push_back(group.members()[i]);
    const auto [a, b] = std::mismatch(values[i].begin(), values[i].end(), values.front().begin(), values.front().end());
    if (values[i] != values.front()) equal = std::min(equal, static_cast<std::size_t>(a - values[i].begin()));
  }
  std::vector<std::string> texts;
  for (const auto& [value, ranks] : ranks_with) {
    texts.push_back(fmt::format("\"{}\" on rank{} {}", shown(value, equal), ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", ")));
  }
  return fmt::format("{}: {}", name, fmt::join(texts, "; "));
}

}  // namespace

void agree(Group& group, const std::vector<Field>& fields) {
  const std::vector<std::vector<Field>> said = exchange(group, fields);
  std::vector<std::string> names;
  for (const auto& each : said) {
    for (const Field& field : each) {
      if (std::find(names.begin(), names.end(), field.name) == names.end()) names.push_back(field.name);
    }
  }
  std::vector<std::string> differences;
  for (const std::string& name : names) {
    std::vector<std::string> values;
    for (const auto& each : said) values.push_back(value_of(each, name));
    const bool same = std::all_of(values.begin(), values.end(), [&](const std::string& value) { return value == values.front(); });
    if (!same) differences.push_back(difference(group, name, values));
  }
  if (differences.empty()) return;
  base::bad_input("the ranks do not mean the same run; start all of them with the same program, run file and data.\n  {}",
                  fmt::join(differences, "\n  "));
}

}  // namespace plimsoll::collectives
