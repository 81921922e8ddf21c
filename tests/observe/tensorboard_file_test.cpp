// The bytes are checked here against TFRecord's framing and protobuf's wire format, read back by a small decoder.
#include "observe/tensorboard_file.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <map>

#include "base/crc32c.h"

namespace plimsoll::observe {
namespace {

template <typename T>
T take_fixed(std::string_view& rest) {
  T value{};
  EXPECT_GE(rest.size(), sizeof value);
  std::memcpy(&value, rest.data(), sizeof value);
  rest.remove_prefix(sizeof value);
  return value;
}

std::uint64_t take_varint(std::string_view& rest) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<std::uint8_t>(rest.front());
    rest.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7Fu) << shift;
    if (byte < 0x80u) return value;
  }
}

std::string_view take_bytes(std::string_view& rest) {
  const std::uint64_t length = take_varint(rest);
  const std::string_view bytes = rest.substr(0, length);
  rest.remove_prefix(length);
  return bytes;
}

struct Decoded {
  double wall_time = 0.0;
  std::int64_t step = 0;
  std::string version;
  std::map<std::string, float> scalars;
};

void decode_summary(std::string_view summary, Decoded& out) {
  while (!summary.empty()) {
    EXPECT_EQ(take_varint(summary), 1u << 3 | 2u);
    std::string_view value = take_bytes(summary);
    EXPECT_EQ(take_varint(value), 1u << 3 | 2u);
    const std::string tag(take_bytes(value));
    EXPECT_EQ(take_varint(value), 2u << 3 | 5u);
    out.scalars[tag] = take_fixed<float>(value);
    EXPECT_TRUE(value.empty());
  }
}

Decoded decode(std::string_view event) {
  Decoded out;
  while (!event.empty()) {
    switch (take_varint(event)) {
      case 1 << 3 | 1: out.wall_time = take_fixed<double>(event); break;
      case 2 << 3 | 0: out.step = static_cast<std::int64_t>(take_varint(event)); break;
      case 3 << 3 | 2: out.version = take_bytes(event); break;
      case 5 << 3 | 2: decode_summary(take_bytes(event), out); break;
      default: ADD_FAILURE() << "unknown field"; return out;
    }
  }
  return out;
}

std::vector<Decoded> decode_file(std::string_view file) {
  std::vector<Decoded> events;
  while (!file.empty()) {
    const std::string_view length_bytes = file.substr(0, 8);
    const auto length = take_fixed<std::uint64_t>(file);
    EXPECT_EQ(take_fixed<std::uint32_t>(file), base::masked_crc32c(length_bytes));
    const std::string_view event = file.substr(0, length);
    file.remove_prefix(length);
    EXPECT_EQ(take_fixed<std::uint32_t>(file), base::masked_crc32c(event));
    events.push_back(decode(event));
  }
  return events;
}

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(base::crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(base::crc32c(""), 0u);
  EXPECT_EQ(base::crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(base::masked_crc32c(std::string_view("\x18\0\0\0\0\0\0\0", 8)), 0x224B7FA3u);  // how event files of TensorFlow begin
}

TEST(TensorboardFile, WritesRecordsThatDecode) {
  std::string file;
  int writes = 0;
  ManualClock clock(1.7e9);
  TensorboardFile board(
      [&](std::string_view bytes) {
        file += bytes;
        ++writes;
      },
      clock);
  clock.advance(2.5);
  board.write(300, {{"a", 1.5}, {"b/c", -2.0}});
  StepDone step{.step = 1'000'000'000'000, .loss = 2.25, .lr = 0.5, .peak_bytes = {.device = 7, .disk = 9}};
  step.evaluation = Evaluation{.loss = 0.0};
  board.on(step);
  board.on(RunEnded{});
  EXPECT_EQ(writes, 3);
  const std::vector<Decoded> events = decode_file(file);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[0].wall_time, 1.7e9);
  EXPECT_EQ(events[1].step, 300);
  EXPECT_EQ(events[1].wall_time, 1.7e9 + 2.5);
  EXPECT_EQ(events[1].scalars, (std::map<std::string, float>{{"a", 1.5f}, {"b/c", -2.0f}}));
  EXPECT_EQ(events[2].step, 1'000'000'000'000);
  EXPECT_EQ(events[2].scalars.at("train/loss"), 2.25f);
  EXPECT_EQ(events[2].scalars.at("memory/device_peak_bytes"), 7.0f);
  EXPECT_EQ(events[2].scalars.at("eval/perplexity"), 1.0f);
  EXPECT_FALSE(events[2].scalars.contains("memory/host_peak_bytes"));
  EXPECT_FALSE(events[2].scalars.contains("train/loss_scale"));
}

TEST(TensorboardFile, NameIsFoundByTensorboard) { EXPECT_EQ(event_file_name(1.7e9 + 0.9, "box"), "events.out.tfevents.1700000000.box"); }

}  // namespace
}  // namespace plimsoll::observe
