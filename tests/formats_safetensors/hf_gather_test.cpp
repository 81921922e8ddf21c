// Tensors that several threads move at once arrive as element by element they should.
#include "formats/hf_gather.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <random>

namespace plimsoll::formats {
namespace {

// A file of which some parts are in the page cache and others are not.
class SomePages : public io::Mapping::Pages {
 public:
  enum class Cached { all, none, some };
  SomePages(Cached cached, std::span<const std::byte> bytes) : cached_(cached), bytes_(bytes) {}

  void check_size() const override {}
  void check_unchanged() const override {}
  bool in_memory(std::span<const std::byte> /*part*/) const override {
    ++calls;
    return cached_ == Cached::some ? calls % 3 == 0 : cached_ == Cached::all;
  }
  void read(std::span<const std::byte> part, std::byte* to) const override {
    EXPECT_TRUE(part.data() >= bytes_.data() && part.data() + part.size() <= bytes_.data() + bytes_.size());
    if (fails) throw io::IoError("read", "weights", EIO);
    std::copy(part.begin(), part.end(), to);
  }
  void let_go(std::span<const std::byte> /*part*/) const override { ++calls; }

  mutable std::atomic<std::int64_t> calls = 0;
  bool fails = false;

 private:
  Cached cached_;
  std::span<const std::byte> bytes_;
};

// The values of a tensor that begins at an odd byte of its file.
struct Stored {
  explicit Stored(const HfPart& part, FileDType dtype)
      : values(static_cast<std::size_t>(part.shape[0] * part.shape[1])),
        bytes(1 + values.size() * static_cast<std::size_t>(bits_of(dtype) / 8)) {
    std::mt19937 random(7);
    for (float& value : values) value = static_cast<float>(random() % 256);  // the same in every type
    write_f32(dtype, values, std::span(bytes).subspan(1));
    view.name = "tensor";
    view.dtype = dtype;
    view.shape = part.shape;
    view.data = std::span(bytes).subspan(1);
  }

  std::shared_ptr<SomePages> in_file(SomePages::Cached cached) {
    auto pages = std::make_shared<SomePages>(cached, bytes);
    view.file = std::make_shared<const io::Mapping>(std::span<const std::byte>(bytes), std::shared_ptr<const io::Mapping::Pages>(pages));
    return pages;
  }

  std::vector<float> values;
  std::vector<std::byte> bytes;
  TensorView view;
};

// `rows` x `columns` of theirs; our tensor has the runs' rows.
void expect_gathered(const HfPart& part, const Stored& stored, std::int64_t width, std::int64_t our_rows) {
  const std::vector<float>& theirs = stored.values;
  std::vector<float> ours(static_cast<std::size_t>(our_rows * width), -1.0f);
  gather_part(part, stored.view, {0, width}, ours);
  std::int64_t wrong = 0;
  for (const RowRun& run : part.rows) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      for (std::int64_t column = 0; column < width; ++column) {
        const std::int64_t from = part.transposed ? column * part.shape[1] + run.theirs + i : (run.theirs + i) * part.shape[1] + column;
        const std::int64_t to = (run.ours + i * run.step) * width + column;
        wrong += ours[static_cast<std::size_t>(to)] != theirs[static_cast<std::size_t>(from)] ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(wrong, 0);
}

struct Case {
  HfPart part;
  std::int64_t width;
  std::int64_t our_rows;
};

std::vector<Case> large_cases() {
  return {{{.name = "straight", .shape = {6001, 1023}, .rows = {{.ours = 0, .theirs = 0, .count = 6001}}}, 1023, 6001},
          {{.name = "rows apart", .shape = {9001, 511}, .rows = {{.ours = 1, .theirs = 0, .count = 9001, .step = 2}}}, 511, 18002},
          {{.name = "transposed",
            .shape = {1999, 1500},
            .rows = {{.ours = 700, .theirs = 0, .count = 800}, {.ours = 0, .theirs = 800, .count = 700}},
            .transposed = true},
           1999,
           1500}};
}

TEST(GatherPart, LargeTensors) {
  for (const Case& each : large_cases()) {
    for (const FileDType dtype : {FileDType::f32, FileDType::bf16, FileDType::f16, FileDType::f64}) {
      SCOPED_TRACE(each.part.name);
      Stored stored(each.part, dtype);
      expect_gathered(each.part, stored, each.width, each.our_rows);
      for (const auto cached : {SomePages::Cached::all, SomePages::Cached::none, SomePages::Cached::some}) {
        const auto pages = stored.in_file(cached);
        expect_gathered(each.part, stored, each.width, each.our_rows);
        EXPECT_LT(pages->calls, 300);  // many rows at a time: each time the system is asked
      }
    }
  }
}

TEST(GatherPart, ADrivesErrorIsToldByWhicheverThreadItStrikes) {
  for (const Case& each : large_cases()) {
    Stored stored(each.part, FileDType::bf16);
    stored.in_file(SomePages::Cached::none)->fails = true;
    std::vector<float> ours(static_cast<std::size_t>(each.our_rows * each.width));
    EXPECT_THROW(gather_part(each.part, stored.view, {0, each.width}, ours), io::IoError) << each.part.name;
  }
}

}  // namespace
}  // namespace plimsoll::formats
