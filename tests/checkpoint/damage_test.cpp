// Damage on the medium is found, wherever it is, and named: file, block, expected and found.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "checkpoint/states.h"

namespace plimsoll::checkpoint {
namespace {

class DamageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const std::int64_t step : {1, 2}) save_state(disk_, folder(), step);
  }

  io::Path folder() const { return temporary_.path(); }
  io::Path newest() const { return folder() / "step-00000002"; }

  std::string verdict() {
    try {
      verify(disk_, open(disk_, newest()));
      return "";
    } catch (const base::Error& error) {
      return error.what();
    }
  }

  // The newest is refused and the one before it used.
  void expect_fallback(const std::string& what) {
    EXPECT_NE(verdict(), "") << what;
    EXPECT_EQ(newest_step(disk_, folder()), 1) << what;
  }

  MemoryFolder temporary_;
  io::PosixFileSystem disk_;
};

TEST_F(DamageTest, EveryBitOfTheManifest) {
  const io::Path path = newest() / "manifest.json";
  const std::string text = io::read_text(disk_, path);
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    overwrite(disk_, path, flipped);
    EXPECT_NE(verdict(), "") << bit;
    if (bit % 97 == 0) expect_fallback("bit");
  }
}

TEST_F(DamageTest, EveryLengthOfTheManifestAndOfTheData) {
  for (const char* name : {"manifest.json", "data-00000.bin"}) {
    const std::string bytes = io::read_text(disk_, newest() / name);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      overwrite(disk_, newest() / name, std::string_view(bytes).substr(0, size));
      EXPECT_NE(verdict(), "") << name << " " << size;
    }
    overwrite(disk_, newest() / name, bytes + "x");
    expect_fallback("longer");
    overwrite(disk_, newest() / name, bytes);
    EXPECT_EQ(verdict(), "");
  }
}

// Every single bit, and many random flips of 1 to 64 bits.
TEST_F(DamageTest, FlippedBitsOfTheData) {
  const io::Path path = newest() / "data-00000.bin";
  const std::string bytes = io::read_text(disk_, path);
  io::File file(disk_, path, io::OpenMode::write);
  std::mt19937_64 random(11);
  const auto bits = 8 * bytes.size();
  for (std::size_t trial = 0; trial < bits + PLIMSOLL_FLIPS; ++trial) {
    std::string flipped = bytes;
    const std::size_t count = trial < bits ? 1 : 1 + random() % 64;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t bit = trial < bits ? trial : random() % bits;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    }
    if (flipped == bytes) continue;
    file.write_at(0, io::as_bytes(flipped));
    const std::string message = verdict();
    ASSERT_NE(message.find("data-00000.bin' is damaged in block"), std::string::npos) << trial << " " << message;
    ASSERT_NE(message.find("expected"), std::string::npos);
  }
  expect_fallback("flip");
}

// Large files are read by several threads: wherever the damage is, and to however many pieces the tensor is cut, it is found.
TEST_F(DamageTest, LargeFiles) {
  State state{{"a", filled(base::DType::u8, {13'000'000}, 1)},
              {"b", filled(base::DType::f32, {1000}, 2)},
              {"c", filled(base::DType::u8, {6'345'678}, 3)}};
  SaveRequest request = request_at(3);
  request.block_bytes = kBlockBytes;
  save(disk_, folder(), request, sources_of(state));
  const Checkpoint there = open(disk_, folder() / step_name(3));
  State found = state;
  for (auto& [name, tensor] : found) std::fill(tensor.data.begin(), tensor.data.end(), std::byte{0});
  load(disk_, there, targets_of(found));
  EXPECT_EQ(found, state);

  std::vector<std::byte> part(3'654'321);
  const TensorTarget target{"a", base::DType::u8, {13'000'000}, part, 7'111'111};
  load(disk_, there, std::span(&target, 1), Unclaimed::ignore);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), state.at("a").data.begin() + 7'111'111));

  io::File file(disk_, there.path / "data-00000.bin", io::OpenMode::write);
  const std::int64_t size = file.size();
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 6; ++trial) {
    const auto at = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size));
    std::byte byte{};
    file.read_exactly(at, std::span(&byte, 1));
    const std::byte wrong = byte ^ static_cast<std::byte>(1u << random() % 8);
    file.write_at(at, std::span(&wrong, 1));
    try {
      load(disk_, there, targets_of(found));
      ADD_FAILURE() << "byte " << at;
    } catch (const base::Error& error) {
      EXPECT_NE(std::string(error.what()).find(fmt::format("damaged in block {} ", at / kBlockBytes)), std::string::npos) << error.what();
    }
    EXPECT_THROW(verify(disk_, there), base::Error);
    file.write_at(at, std::span(&byte, 1));
  }
  EXPECT_NO_THROW(verify(disk_, there));
}

TEST_F(DamageTest, FilesOfOtherCheckpoints) {
  const std::string good = io::read_text(disk_, newest() / "data-00000.bin");
  overwrite(disk_, newest() / "data-00000.bin", io::read_text(disk_, folder() / "step-00000001" / "data-00000.bin"));
  expect_fallback("stale data");
  disk_.remove(newest() / "data-00000.bin");
  expect_fallback("missing data");
  overwrite(disk_, folder() / "outside.bin", good);
  std::filesystem::create_symlink(folder() / "outside.bin", newest() / "data-00000.bin");
  expect_fallback("a link to good data");
  disk_.remove(newest() / "data-00000.bin");
  overwrite(disk_, newest() / "data-00000.bin", good);
  EXPECT_EQ(verdict(), "");
  overwrite(disk_, newest() / "manifest.json", io::read_text(disk_, folder() / "step-00000001" / "manifest.json"));
  EXPECT_NE(verdict().find("holds a checkpoint of step 1"), std::string::npos);
  disk_.remove(newest() / "manifest.json");
  expect_fallback("no manifest");
  io::remove_tree(disk_, newest());
  overwrite(disk_, newest(), "a file where a folder should be");
  EXPECT_EQ(newest_step(disk_, folder()), 1);
}

TEST_F(DamageTest, SwappedFilesOfTwoWriters) {
  const State state = state_at(3);
  std::vector<std::vector<TensorSource>> pieces(2);
  for (const TensorSource& source : sources_of(state)) pieces[source.name < "b" ? 0 : 1].push_back(source);
  begin(disk_, folder(), 3);
  std::vector<Part> parts;
  for (std::int64_t writer : {0, 1})
    parts.push_back(write_part(disk_, folder(), request_at(3), writer, pieces[static_cast<std::size_t>(writer)]));
  commit(disk_, folder(), request_at(3), parts);
  ASSERT_EQ(newest_step(disk_, folder()), 3);
  const io::Path path = folder() / step_name(3);
  disk_.rename(path / data_name(0), path / "swap");
  disk_.rename(path / data_name(1), path / data_name(0));
  disk_.rename(path / "swap", path / data_name(1));
  EXPECT_EQ(newest_step(disk_, folder()), 2);
}

}  // namespace
}  // namespace plimsoll::checkpoint
