// What is saved is loaded, in whatever pieces; which checkpoint is taken; what goes when a new one is safe.
#include <gtest/gtest.h>

#include <random>

#include "checkpoint/states.h"
#include "io/temporary_folder.h"

namespace plimsoll::checkpoint {
namespace {

class SaveLoadTest : public ::testing::Test {
 protected:
  io::Path folder() const { return temporary_.path() / "run" / "checkpoints"; }
  std::vector<std::string> names() { return names_in(disk_, folder()); }

  std::string message_of(const std::function<void()>& call) {
    try {
      call();
      return "";
    } catch (const base::Error& error) {
      return error.what();
    }
  }

  tests::TemporaryFolder temporary_;
  io::PosixFileSystem disk_;
};

TEST_F(SaveLoadTest, AStateComesBackBitForBit) {
  EXPECT_EQ(newest_step(disk_, folder()), -1);
  const SaveResult result = save_state(disk_, folder(), 7);
  EXPECT_EQ(result.path.filename(), "step-00000007");
  EXPECT_TRUE(result.notes.empty());
  EXPECT_EQ(names(), std::vector<std::string>{"step-00000007"});
  EXPECT_EQ(newest_step(disk_, folder()), 7);
}

TEST_F(SaveLoadTest, LargeTensorsSpanBlocks) {
  State state{{"big", filled(base::DType::u8, {3 * kBlockBytes + 12345}, 1)},
              {"a", filled(base::DType::f32, {100}, 2)},
              {"c", filled(base::DType::u8, {kBlockBytes}, 3)}};
  save(disk_, folder(), {.identity = {"r", "c"}, .step = 1}, sources_of(state));
  const Checkpoint checkpoint = open(disk_, folder() / step_name(1));
  EXPECT_EQ(checkpoint.manifest.files[0].sums.size(), 5u);
  State loaded = state;
  for (auto& [name, tensor] : loaded) std::fill(tensor.data.begin(), tensor.data.end(), std::byte{0});
  load(disk_, checkpoint, targets_of(loaded));
  EXPECT_EQ(loaded, state);
}

TEST_F(SaveLoadTest, TheNewestIsTakenAndOldOnesGo) {
  for (const std::int64_t step : {1, 2, 3, 10, 200}) save_state(disk_, folder(), step);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000010", "step-00000200"}));
  EXPECT_EQ(newest_step(disk_, folder()), 200);
  SaveRequest request = request_at(300);
  request.keep = 3;
  const State state = state_at(300);
  save(disk_, folder(), request, sources_of(state));
  EXPECT_EQ(names().size(), 3u);
  request.keep = 1;
  EXPECT_NE(message_of([&] { save(disk_, folder(), request, sources_of(state)); }).find("at least 2"), std::string::npos);
}

TEST_F(SaveLoadTest, ADamagedOneIsPassedOverInWordsAndKeptForLooking) {
  for (const std::int64_t step : {1, 2}) save_state(disk_, folder(), step);
  overwrite(disk_, folder() / "step-00000002" / "data-00000.bin", "short");
  const Search search = newest_valid(disk_, folder());
  ASSERT_TRUE(search.found);
  EXPECT_EQ(search.found->manifest.step, 1);
  ASSERT_EQ(search.problems.size(), 1u);
  EXPECT_NE(search.problems[0].find("step 2 cannot be used"), std::string::npos);
  EXPECT_NE(search.problems[0].find("has 5 bytes"), std::string::npos);
  save_state(disk_, folder(), 3);  // step 1 is the only good one to fall back to: it must not go for the sake of step 2
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000001", "step-00000002", "step-00000003"}));
}

TEST_F(SaveLoadTest, ADamagedOneOfTheSameStepIsReplaced) {
  for (const std::int64_t step : {1, 2}) save_state(disk_, folder(), step);
  disk_.remove(folder() / "step-00000002" / "manifest.json");
  EXPECT_FALSE(save_state(disk_, folder(), 2).already_there);
  EXPECT_EQ(newest_step(disk_, folder()), 2);
  EXPECT_TRUE(save_state(disk_, folder(), 2).already_there);
}

TEST_F(SaveLoadTest, NewerOnesAreLeftAlone) {
  for (const std::int64_t step : {10, 20}) save_state(disk_, folder(), step);
  save_state(disk_, folder(), 5);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000005", "step-00000010", "step-00000020"}));
}

TEST_F(SaveLoadTest, OtherRunsAndNewerFormatsAreRefused) {
  save_state(disk_, folder(), 1);
  EXPECT_NE(message_of([&] { newest_valid(disk_, folder(), {"run-2", ""}); }).find("another run ('run-1'; this one is 'run-2')"),
            std::string::npos);
  EXPECT_NE(message_of([&] { newest_valid(disk_, folder(), {"run-1", "beef"}); }).find("other settings"), std::string::npos);
  const State state = state_at(1);
  SaveRequest foreign = request_at(1);
  foreign.identity.run = "run-2";
  EXPECT_NE(message_of([&] { save(disk_, folder(), foreign, sources_of(state)); }).find("another run"), std::string::npos);
  EXPECT_EQ(newest_step(disk_, folder()), 1);
  disk_.make_directory(folder() / "step-00000009");
  overwrite(disk_, folder() / "step-00000009" / "manifest.json", seal_manifest(2, "{\"x\":1}"));
  EXPECT_NE(message_of([&] { newest_valid(disk_, folder()); }).find("newer Plimsoll"), std::string::npos);
}

TEST_F(SaveLoadTest, NamesThatAreNotOursAreIgnored) {
  save_state(disk_, folder(), 1);
  for (const char* name :
       {"step-1", "step-00000002x", "step-", "notes", "step--0000001", "step-00000003.tmp2", "step-99999999999999999999"}) {
    disk_.make_directory(folder() / name);
  }
  EXPECT_EQ(newest_step(disk_, folder()), 1);
  EXPECT_EQ(list_steps(disk_, folder()), std::vector<std::int64_t>{1});
  EXPECT_EQ(step_of("step-123456789"), 123456789);
  save_state(disk_, folder(), 2);
  EXPECT_EQ(names().size(), 9u);
}

TEST_F(SaveLoadTest, DebrisGoesWithTheNextSave) {
  save_state(disk_, folder(), 1);
  disk_.make_directory(folder() / "step-00000002.tmp");
  overwrite(disk_, folder() / "step-00000002.tmp" / "data-00000.bin", "half");
  save_state(disk_, folder(), 3);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000001", "step-00000003"}));
}

TEST_F(SaveLoadTest, TensorsMustBeTheRuns) {
  save_state(disk_, folder(), 1);
  const Checkpoint checkpoint = open(disk_, folder() / step_name(1));
  State state = state_at(0);
  State other = state;
  other["a.master"].shape = {9, 17};
  EXPECT_NE(message_of([&] { load(disk_, checkpoint, targets_of(other)); }).find("f32[17, 9]; this run's is f32[9, 17]"),
            std::string::npos);
  other = state;
  other["a.master"].dtype = base::DType::i32;
  EXPECT_NE(message_of([&] { load(disk_, checkpoint, targets_of(other)); }).find("this run's is i32[17, 9]"), std::string::npos);
  other = state;
  other["z"] = other["step"];
  EXPECT_NE(message_of([&] { load(disk_, checkpoint, targets_of(other)); }).find("holds no tensor 'z'"), std::string::npos);
  other = state;
  other.erase("scalars");
  EXPECT_NE(message_of([&] { load(disk_, checkpoint, targets_of(other)); }).find("a tensor 'scalars' that this run does not have"),
            std::string::npos);
  load(disk_, checkpoint, targets_of(other), Unclaimed::ignore);
  state = state_at(1);
  state.erase("scalars");
  EXPECT_EQ(other, state);
}

TEST_F(SaveLoadTest, LoadingTheNewestFallsBackWhenDataAreDamaged) {
  for (const std::int64_t step : {1, 2}) save_state(disk_, folder(), step);
  const io::Path data = folder() / "step-00000002" / "data-00000.bin";
  std::string bytes = io::read_text(disk_, data);
  bytes[bytes.size() - 1] = static_cast<char>(bytes[bytes.size() - 1] ^ 1);  // the last block: all others will have been loaded
  overwrite(disk_, data, bytes);
  State state = state_at(0);
  const Search search =
      load_newest(disk_, folder(), {"run-1", "c0ffee"}, [&](const Checkpoint& found) { load(disk_, found, targets_of(state)); });
  ASSERT_TRUE(search.found);
  EXPECT_EQ(search.found->manifest.step, 1);
  EXPECT_NE(search.problems.at(0).find("damaged in block"), std::string::npos);
  EXPECT_EQ(state, state_at(1));
}

// Checkpoints of every released format load in every later version: golden/vN holds the state of step 3 as version N wrote it.
TEST_F(SaveLoadTest, OldFormatsStillLoad) {
  const io::Path golden = PLIMSOLL_SOURCE_DIR "/tests/checkpoint/golden";
  for (std::int64_t version = 1; version <= kFormatVersion; ++version) {
    EXPECT_EQ(newest_step(disk_, golden / fmt::format("v{}", version)), 3) << version;
  }
}

// Any split over any number of writers loads into any split of targets.
TEST_F(SaveLoadTest, PiecesOfSeveralWritersMakeOneCheckpoint) {
  std::mt19937 random(5);
  for (std::int64_t trial = 1; trial <= 20; ++trial) {
    const State state = state_at(trial);
    const auto writers = static_cast<std::size_t>(1 + random() % 4);
    std::vector<std::vector<TensorSource>> pieces(writers);
    for (const auto& [name, tensor] : state) {
      std::size_t begin = 0;
      do {
        const std::size_t length = tensor.data.empty() ? 0 : 1 + random() % (tensor.data.size() - begin);
        pieces[random() % writers].push_back(
            {name, tensor.dtype, tensor.shape, std::span(tensor.data).subspan(begin, length), static_cast<std::int64_t>(begin)});
        begin += length;
      } while (begin < tensor.data.size());
    }
    begin(disk_, folder(), trial);
    std::vector<Part> parts;
    for (std::size_t writer = 0; writer < writers; ++writer) {
      const Part part = write_part(disk_, folder(), request_at(trial), static_cast<std::int64_t>(writer), pieces[writer]);
      parts.push_back(part_from_json(base::parse_json(base::write_json(to_json(part)), "part")));
      EXPECT_EQ(parts.back(), part);
    }
    commit(disk_, folder(), request_at(trial), parts);
    ASSERT_EQ(newest_step(disk_, folder()), trial);

    State loaded = state_at(0);
    std::vector<TensorTarget> targets;
    for (auto& [name, tensor] : loaded) {
      const std::size_t cut = random() % (tensor.data.size() + 1);
      targets.push_back({name, tensor.dtype, tensor.shape, std::span(tensor.data).subspan(cut), static_cast<std::int64_t>(cut)});
      targets.push_back({name, tensor.dtype, tensor.shape, std::span(tensor.data).first(cut), 0});
    }
    load(disk_, open(disk_, folder() / step_name(trial)), targets);
    EXPECT_EQ(loaded, state);
  }
}

TEST_F(SaveLoadTest, AFullDiskIsRefusedBeforeAnythingIsWritten) {
  save_state(disk_, folder(), 1);
  const std::vector<std::byte> some(8);
  // More than any disk has; the span is never read, because the room is checked first.
  const TensorSource huge{"x", base::DType::u8, {std::int64_t{1} << 60}, std::span(some.data(), std::size_t{1} << 60)};
  try {
    save(disk_, folder(), request_at(2), std::span(&huge, 1));
    FAIL();
  } catch (const io::IoError& error) {
    EXPECT_TRUE(error.disk_full());
  }
  EXPECT_EQ(names(), std::vector<std::string>{"step-00000001"});
}

}  // namespace
}  // namespace plimsoll::checkpoint
