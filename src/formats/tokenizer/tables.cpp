#include "formats/tokenizer/tables.h"

#include <bit>

#include "base/error.h"

namespace plimsoll::formats::tokenizer {

namespace {

constexpr std::int32_t kMostNodes = 1 << 24;  // a node's number and a byte fit into 32 bits

}  // namespace

void TextTable::reserve(std::size_t texts) { grow(std::bit_ceil(texts * 2 + 16)); }

void TextTable::grow(std::size_t slots) {
  if (slots <= slots_.size()) return;
  slots_.assign(slots, kNone);
  for (std::size_t id = 0; id < places_.size(); ++id) {
    if (places_[id].used) slots_[slot_of(text_at(static_cast<std::int32_t>(id)))] = static_cast<std::int32_t>(id);
  }
}

std::uint64_t TextTable::slot_of(std::string_view text) const {
  std::uint64_t slot = hash_text(text) & (slots_.size() - 1);
  while (slots_[slot] != kNone && text_at(slots_[slot]) != text) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void TextTable::keep_text(std::string_view text, std::int32_t id) {
  if ((count_ + 1) * 2 > slots_.size()) grow(std::bit_ceil((count_ + 1) * 4));
  if (static_cast<std::size_t>(id) >= places_.size()) places_.resize(static_cast<std::size_t>(id) + 1);
  places_[static_cast<std::size_t>(id)] = {bytes_.size(), static_cast<std::uint32_t>(text.size()), true};
  bytes_.append(text);
  slots_[slot_of(text)] = id;
  ++count_;
}

bool TextTable::add(std::string_view text, std::int32_t id) {
  if (has(id) || find(text) != kNone) return false;
  keep_text(text, id);
  return true;
}

void TextTable::add_again(std::string_view text, std::int32_t id) {
  PLIMSOLL_CHECK(!has(id), "id {} has a text", id);
  keep_text(text, id);
}

std::int32_t TextTable::find(std::string_view text) const { return slots_.empty() ? kNone : slots_[slot_of(text)]; }

PairTable::PairTable(std::size_t pairs) : slots_(std::bit_ceil(pairs * 2 + 2)), mask_(slots_.size() - 1) {}

void PairTable::add(std::int32_t left, std::int32_t right, std::uint32_t rank, std::int32_t made) {
  const std::uint64_t key = key_of(left, right);
  std::uint64_t slot = mix(key) & mask_;
  while (slots_[slot].key != kNone && slots_[slot].key != key) slot = (slot + 1) & mask_;
  slots_[slot] = {key, static_cast<std::uint64_t>(rank) << 32 | static_cast<std::uint32_t>(made)};
}

ByteTrie::ByteTrie() : slots_(64), mask_(63), values_{kNone} {}

void ByteTrie::place(std::uint32_t key, std::int32_t child) {
  std::uint64_t slot = mix(key) & mask_;
  while (slots_[slot].child != kNone) slot = (slot + 1) & mask_;
  slots_[slot] = {key, child};
}

void ByteTrie::add(std::string_view word, std::int32_t value) {
  std::int32_t node = 0;
  for (const char byte : word) {
    std::int32_t next = child(node, byte);
    if (next == kNone) {
      next = static_cast<std::int32_t>(values_.size());
      if (next >= kMostNodes) base::bad_input("the words of the vocabulary have more than {} different beginnings", kMostNodes);
      values_.push_back(kNone);
      if (values_.size() * 2 > slots_.size()) {
        const std::vector<Slot> old = std::move(slots_);
        slots_.assign(old.size() * 2, {});
        mask_ = slots_.size() - 1;
        for (const Slot& slot : old) {
          if (slot.child != kNone) place(slot.key, slot.child);
        }
      }
      place(key_of(node, byte), next);
    }
    node = next;
  }
  values_[static_cast<std::size_t>(node)] = value;
}

std::int32_t ByteTrie::walk(std::string_view word, std::int32_t from) const {
  for (const char byte : word) {
    if (from == kNone) return kNone;
    from = child(from, byte);
  }
  return from;
}

ByteTrie::Match ByteTrie::longest(std::string_view text, std::int32_t node) const {
  Match best;
  for (std::size_t i = 0; i < text.size(); ++i) {
    node = child(node, text[i]);
    if (node == kNone) break;
    if (value(node) != kNone) best = {i + 1, value(node)};
  }
  return best;
}

}  // namespace plimsoll::formats::tokenizer
