// Any operation of a save fails: the checkpoints before it stay whole, the failure is told, and the next save works.
#include <gtest/gtest.h>

#include "checkpoint/states.h"
#include "support/io/faulty_file_system.h"
#include "support/io/recording_file_system.h"

namespace plimsoll::checkpoint {
namespace {

class FaultTest : public ::testing::TestWithParam<io::FaultKind> {
 protected:
  void at_every_operation(SaveState save_state_so);

  io::Path folder() const { return temporary_.path() / "checkpoints"; }

  void expect_whole(std::int64_t step) { EXPECT_NO_THROW(verify(disk_, open(disk_, folder() / step_name(step)))) << step; }

  MemoryFolder temporary_;
  io::PosixFileSystem disk_;
};

void FaultTest::at_every_operation(SaveState save_state_so) {
  for (const std::int64_t step : {1, 2}) save_state(disk_, folder(), step);
  const io::FileTree before = io::read_tree(disk_, folder());
  std::int64_t failures = 0;
  std::int64_t k = 1;
  for (;; ++k) {
    io::FaultyFileSystem faulty(disk_, {.at = k, .kind = GetParam()});
    bool told = false;
    try {
      told = !save_state_so(faulty, folder(), 3).notes.empty();
      EXPECT_EQ(newest_step(disk_, folder()), 3) << k;
    } catch (const io::IoError&) {
      told = true;
      ++failures;
      expect_whole(1);  // nothing goes before the new one was read back
      expect_whole(2);
      EXPECT_GE(newest_step(disk_, folder()), 2) << k;
    }
    EXPECT_TRUE(told || !faulty.fired() || newest_step(disk_, folder()) == 3) << k;
    save_state(disk_, folder(), 4);
    EXPECT_EQ(newest_step(disk_, folder()), 4) << k;
    for (const std::string& name : names_in(disk_, folder())) EXPECT_TRUE(step_of(name)) << k << " " << name;
    io::remove_tree(disk_, folder());
    io::write_tree(disk_, folder(), before);
    if (!faulty.reached()) break;
  }
  EXPECT_GT(k, 40);
  EXPECT_GE(failures, GetParam() == io::FaultKind::io_error ? 20 : 5);
}

TEST_P(FaultTest, AtEveryOperationOfASave) { at_every_operation(save_state); }

TEST_P(FaultTest, AtEveryOperationOfASaveBesideTraining) { at_every_operation(save_state_beside); }

TEST_P(FaultTest, AtEveryOperationOfALoad) {
  for (const std::int64_t step : {1, 2}) save_state(disk_, folder(), step);
  for (std::int64_t k = 1;; ++k) {
    io::FaultyFileSystem faulty(disk_, {.at = k, .kind = GetParam()});
    State state = state_at(0);
    Search search;
    try {
      search = load_newest(faulty, folder(), {}, [&](const Checkpoint& found) { load(faulty, found, targets_of(state)); });
    } catch (const io::IoError&) {  // the folder itself could not be listed
      continue;
    }
    ASSERT_TRUE(search.found) << k;
    EXPECT_EQ(state, state_at(search.found->manifest.step)) << k;
    EXPECT_EQ(search.found->manifest.step == 2, search.problems.empty());
    if (!faulty.reached()) break;
  }
}

// A disk that says it has written what it has not.
class LyingFileSystem final : public io::FileSystem {
 public:
  LyingFileSystem(io::FileSystem& inner, std::int64_t at) : inner_(inner), left_(at) {}
  bool reached() const { return left_ <= 0; }

  void write_at(const io::OpenFile& file, std::int64_t offset, std::span<const std::byte> data) override {
    std::vector<std::byte> written(data.begin(), data.end());
    if (--left_ == 0) written[written.size() / 2] ^= std::byte{4};
    inner_.write_at(file, offset, written);
  }
  io::OpenFile open(const io::Path& path, io::OpenMode mode) override { return inner_.open(path, mode); }
  void close(const io::OpenFile& file) override { inner_.close(file); }
  std::int64_t size(const io::OpenFile& file) override { return inner_.size(file); }
  std::size_t read_at(const io::OpenFile& file, std::int64_t offset, std::span<std::byte> out) override {
    return inner_.read_at(file, offset, out);
  }
  void append(const io::OpenFile& file, std::span<const std::byte> data) override { inner_.append(file, data); }
  void sync(const io::OpenFile& file) override { inner_.sync(file); }
  io::Mapping map(const io::Path& path) override { return inner_.map(path); }
  void sync_directory(const io::Path& path) override { inner_.sync_directory(path); }
  void rename(const io::Path& from, const io::Path& to) override { inner_.rename(from, to); }
  void remove(const io::Path& path) override { inner_.remove(path); }
  void make_directory(const io::Path& path) override { inner_.make_directory(path); }
  std::vector<io::Entry> list(const io::Path& path) override { return inner_.list(path); }
  std::optional<io::Status> status(const io::Path& path) override { return inner_.status(path); }
  base::Bytes free_space(const io::Path& path) override { return inner_.free_space(path); }

 private:
  io::FileSystem& inner_;
  std::int64_t left_;
};

TEST(ReadBack, FindsWhatADiskDidNotWriteBeforeAnythingGoes) {
  const MemoryFolder folder;
  io::PosixFileSystem disk;
  for (const std::int64_t step : {1, 2}) save_state(disk, folder.path(), step);
  std::int64_t k = 1;
  for (;; ++k) {
    LyingFileSystem lying(disk, k);
    std::string message;
    try {
      save_state(lying, folder.path(), 3);
    } catch (const base::Error& error) {
      message = error.what();
    }
    if (!lying.reached()) break;
    EXPECT_NE(message.find("did not read back"), std::string::npos) << message;
    EXPECT_EQ(names_in(disk, folder.path()), (std::vector<std::string>{"step-00000001", "step-00000002"}));
    EXPECT_EQ(newest_step(disk, folder.path()), 2);
  }
  EXPECT_GT(k, 5);
}

INSTANTIATE_TEST_SUITE_P(Kinds, FaultTest, ::testing::Values(io::FaultKind::io_error, io::FaultKind::no_space, io::FaultKind::short_write),
                         [](const auto& test) {
                           return test.param == io::FaultKind::io_error   ? "IoError"
                                  : test.param == io::FaultKind::no_space ? "NoSpace"
                                                                          : "ShortWrite";
                         });

}  // namespace
}  // namespace plimsoll::checkpoint
