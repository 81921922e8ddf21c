#include "train/session/together.h"

#include <cstring>

#include <fmt/format.h>

#include "base/error.h"

namespace plimsoll::train {

std::vector<std::int64_t> tell_all(collectives::Group* group, std::int64_t number) {
  if (group == nullptr) return {number};
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(group->size()));
  const std::vector<std::int64_t> counts(numbers.size(), sizeof number);
  group->all_gather(std::as_bytes(std::span(&number, 1)), std::as_writable_bytes(std::span(numbers)), counts, base::DType::u8);
  return numbers;
}

std::vector<std::string> tell_all(collectives::Group* group, const std::string& text) {
  if (group == nullptr) return {text};
  const std::vector<std::int64_t> sizes = tell_all(group, static_cast<std::int64_t>(text.size()));
  std::size_t total = 0;
  for (std::int64_t size : sizes) total += static_cast<std::size_t>(size);
  std::string all(total, '\0');
  group->all_gather(std::as_bytes(std::span(text)), std::as_writable_bytes(std::span(all)), sizes, base::DType::u8);
  std::vector<std::string> texts;
  std::size_t begin = 0;
  for (std::int64_t size : sizes) {
    texts.push_back(all.substr(begin, static_cast<std::size_t>(size)));
    begin += static_cast<std::size_t>(size);
  }
  return texts;
}

void together(collectives::Group* group, const std::function<void()>& work) {
  if (group == nullptr) return work();
  std::string failure;
  auto kind = base::ErrorKind::bad_input;
  try {
    work();
  } catch (const base::Error& error) {
    kind = error.kind();
    failure = error.what();
  }
  const std::vector<std::int64_t> kinds = tell_all(group, failure.empty() ? -1 : static_cast<std::int64_t>(kind));
  for (std::size_t member = 0; member < kinds.size(); ++member) {
    if (kinds[member] < 0) continue;
    const std::string reason = tell_all(group, failure)[member];
    base::fail(static_cast<base::ErrorKind>(kinds[member]), "rank {}: {}", group->members()[member], reason);
  }
}

}  // namespace plimsoll::train
