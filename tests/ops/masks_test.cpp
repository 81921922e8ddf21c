// Masks as data: what tiles and counts say against every pair asked one by one, parts of a sequence against the whole, the printed form.
#include <random>

#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/definition.h"
#include "ops/masks/block_map.h"
#include "ops/masks/rules.h"

namespace plimsoll::ops {
namespace {

// Declared as code outside of src would: heads differ, and nothing is said of tiles.
struct EveryHeadItsOwn {
  static constexpr std::string_view kName = "every_head_its_own";
  static constexpr std::string_view kAbout = "keys whose number leaves a rest that the head says";
  static constexpr std::array kNumbers{MaskNumber{.name = "heads", .about = "So many rests.", .least = 1}};
  static constexpr bool kByHead = true;
  static bool visible(const MaskNumbers& numbers, std::int64_t query, std::int64_t key, std::int64_t head) {
    return key == query || key % numbers[0] == head % numbers[0];
  }
};
constexpr MaskRule kOwnRule = mask_row_of<EveryHeadItsOwn>();

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  std::int64_t operator()(std::int64_t low, std::int64_t high) { return std::uniform_int_distribution(low, high)(random_); }

  Mask mask() {
    Mask mask;
    if ((*this)(0, 1) == 0) mask.band.low = (*this)(-20, 20);
    if ((*this)(0, 1) == 0) mask.band.high = std::max(mask.band.low + 1, (*this)(-20, 40));
    const std::int64_t which = (*this)(0, 3);
    if (which == 1) mask.pattern = {find_mask_rule("strided"), {(*this)(0, 6), (*this)(1, 12)}};
    if (which == 2) mask.pattern = {&kOwnRule, {(*this)(1, 5)}};
    return mask;
  }
  MaskTile tile(std::int64_t step) {
    return {{(*this)(0, 30), (*this)(1, 45), step}, {(*this)(0, 30), (*this)(1, 45), step}, (*this)(0, 3)};
  }

 private:
  std::mt19937_64 random_;
};

double count(const Mask& mask, const MaskTile& tile) {
  double pairs = 0.0;
  for (std::int64_t i = 0; i < tile.queries.count; ++i) {
    for (std::int64_t j = 0; j < tile.keys.count; ++j) pairs += mask.visible(tile.queries.at(i), tile.keys.at(j), tile.head) ? 1.0 : 0.0;
  }
  return pairs;
}

TEST(Masks, CountEveryVisiblePair) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Draw draw(seed);
    const Mask mask = draw.mask();
    const MaskTile tile = draw.tile(draw(1, 3));
    EXPECT_EQ(visible_pairs(mask, tile), count(mask, tile)) << seed;
  }
}

// A tile that is said to be empty or full is; with neighbouring positions also the other way round.
TEST(Masks, TilesAreWhatTheirPairsAre) {
  int none = 0;
  int all = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Draw draw(1000 + seed);
    const Mask mask = draw.mask();
    MaskTile tile = draw.tile(draw(1, 3));
    tile.queries.count = draw(1, 6);
    tile.keys.count = draw(1, 6);
    const double pairs = count(mask, tile);
    const double whole = static_cast<double>(tile.queries.count * tile.keys.count);
    const Sight sight = mask.sight(tile);
    none += sight == Sight::none ? 1 : 0;
    all += sight == Sight::all ? 1 : 0;
    EXPECT_TRUE(sight != Sight::none || pairs == 0.0) << seed;
    EXPECT_TRUE(sight != Sight::all || pairs == whole) << seed;
    if (tile.queries.step > 1 || mask.pattern.rule != nullptr) continue;
    EXPECT_EQ(sight == Sight::none, pairs == 0.0) << seed;
    EXPECT_EQ(sight == Sight::all, pairs == whole) << seed;
  }
  EXPECT_GT(none, 50);
  EXPECT_GT(all, 20);
}

TEST(Masks, BlockMapsListWhatIsNotEmpty) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Draw draw(2000 + seed);
    const Mask mask = draw.mask();
    const MaskTile whole = draw.tile(1);
    const BlockShape shape{draw(1, 9), draw(1, 9)};
    const BlockMap map = block_map(mask, whole, shape);
    ASSERT_EQ(map.rows(), static_cast<std::size_t>((whole.queries.count + shape.queries - 1) / shape.queries));
    double listed = 0.0;
    double visible = 0.0;
    for (std::size_t row = 0; row < map.rows(); ++row) {
      const std::int64_t first = static_cast<std::int64_t>(row) * shape.queries;
      const Stretch queries = whole.queries.part(first, std::min(shape.queries, whole.queries.count - first));
      for (const BlockMap::Block& block : map.row(row)) {
        const std::int64_t key = block.keys * shape.keys;
        const MaskTile tile{queries, whole.keys.part(key, std::min(shape.keys, whole.keys.count - key)), whole.head};
        const double pairs = static_cast<double>(tile.queries.count * tile.keys.count);
        listed += pairs;
        visible += count(mask, tile);
        EXPECT_TRUE(!block.full || count(mask, tile) == pairs) << seed;
      }
    }
    EXPECT_EQ(listed, map.pairs) << seed;
    EXPECT_EQ(visible, count(mask, whole)) << seed << ": a tile that is not empty is not listed";
  }
}

TEST(Masks, BandsOfRowsAreThoseOfTheirPositions) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Draw draw(3000 + seed);
    const Band band = draw.mask().band;
    const MaskTile tile = draw.tile(draw(1, 4));
    const Band rows = band_of_rows(band, tile.queries.first - tile.keys.first, tile.queries.step);
    for (std::int64_t i = 0; i < tile.queries.count; ++i) {
      for (std::int64_t j = 0; j < tile.keys.count; ++j)
        ASSERT_EQ(rows.sees(i - j), band.sees(tile.queries.at(i) - tile.keys.at(j))) << seed << " " << i << " " << j;
    }
  }
}

TEST(Masks, ArePrintedAndReadBack) {
  const Attention strided{.heads = {2, 1, 8}, .pattern = {find_mask_rule("strided"), {16, 32}}};
  EXPECT_EQ(to_string(Op(strided)), "attention(heads=2:1:8, pattern=strided:16:32)");
  EXPECT_EQ(parse_op(to_string(Op(strided))), Op(strided));
  const Attention part{.heads = {2, 1, 8}, .window = 9, .separate = true, .first_query = 64, .first_key = 32, .stride = 2, .length = 128};
  EXPECT_EQ(parse_op(to_string(Op(part))), Op(part));
  EXPECT_THROW(parse_op("attention(pattern=nonesuch:1)"), base::Error);
  EXPECT_THROW(parse_op("attention(pattern=strided:1)"), base::Error);
  EXPECT_THROW(parse_op("attention(pattern=strided:1:0)"), base::Error);
}

// A part of the sequence is counted as in the whole, and a pattern by the heads that it tells apart.
TEST(Masks, WorkIsThatOfTheVisiblePairs) {
  const auto flops = [](const Attention& attention, std::int64_t queries, std::int64_t keys) {
    const TensorType query{DType::f32, Shape{2, queries, 6 * 8}};
    const TensorType key{DType::f32, Shape{2, keys, 2 * 8}};
    const std::vector<TensorType> inputs{query, key, key};
    const Definition& definition = definition_of(attention);
    return definition.work(attention, inputs, definition.infer(attention, inputs)).flops;
  };
  Attention attention{.heads = {6, 2, 8}, .separate = true};
  const double whole = flops(attention, 40, 40);
  double parts = flops(attention, 20, 20);
  attention.first_query = 20;
  parts += flops(attention, 20, 20);
  attention.first_key = 20;
  parts += flops(attention, 20, 20);
  EXPECT_EQ(parts, whole);
  EXPECT_EQ(whole, 4.0 * 8.0 * 2.0 * 6.0 * 40.0 * 41.0 / 2.0);

  const Attention by_head{.heads = {6, 2, 8}, .first_head = 3, .pattern = {&kOwnRule, {4}}, .separate = true};
  double pairs = 0.0;
  for (std::int64_t head = 3; head < 9; ++head) pairs += count(by_head.mask(), {{0, 40}, {0, 40}, head});
  EXPECT_EQ(flops(by_head, 40, 40), 4.0 * 8.0 * 2.0 * pairs);
}

TEST(Masks, RefuseNumbersThatARuleDoesNotTake) {
  const Attention attention{.heads = {2, 1, 8}, .pattern = {find_mask_rule("strided"), {16, 0}}};
  const std::vector<TensorType> inputs{{DType::f32, Shape{1, 4, 32}}};
  EXPECT_THROW(definition_of(attention).infer(attention, inputs), base::Error);
}

}  // namespace
}  // namespace plimsoll::ops
