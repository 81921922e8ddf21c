// The crash model must allow what a medium can do: protocols that skip a sync are caught, the full one is not.
#include "support/io/recording_file_system.h"

#include <gtest/gtest.h>

#include <set>

#include "io/files.h"
#include "io/posix_file_system.h"
#include "io/temporary_folder.h"

namespace plimsoll::io {
namespace {

constexpr CrashKind kKinds[] = {CrashKind::killed, CrashKind::unsynced_lost, CrashKind::torn, CrashKind::reordered};

std::string text_in(const FileTree& tree, const Path& path) {
  const auto entry = tree.find(path);
  if (entry == tree.end()) return "(missing)";
  if (!entry->second) return "(folder)";
  return {reinterpret_cast<const char*>(entry->second->data()), entry->second->size()};
}

class RecordingFileSystemTest : public ::testing::Test {
 protected:
  Path root() const { return folder_.path() / "root"; }
  void SetUp() override {
    disk_.make_directory(root());
    replace_file(disk_, root() / "state", as_bytes(old_));
  }

  // Every content of `state` that some crash state shows.
  std::set<std::string> outcomes(const RecordingFileSystem& recording) const {
    std::set<std::string> seen;
    for (std::int64_t after = 0; after <= recording.operations(); ++after) {
      for (const CrashKind kind : kKinds) {
        for (std::uint64_t seed = 0; seed < 20; ++seed) seen.insert(text_in(recording.tree_after({after, kind, seed}), "state"));
      }
    }
    return seen;
  }

  // The protocol of replace_file with steps left out.
  void replace_carelessly(FileSystem& file_system, bool sync_data) const {
    File file(file_system, root() / "state.tmp", OpenMode::create);
    file.write_at(0, as_bytes(new_));
    if (sync_data) file.sync();
    file.close();
    file_system.rename(root() / "state.tmp", root() / "state");
  }

  tests::TemporaryFolder folder_;
  PosixFileSystem disk_;
  const std::string old_ = std::string(2000, 'o');
  const std::string new_ = std::string(3000, 'n');
};

TEST_F(RecordingFileSystemTest, FullProtocolLeavesOldOrNewOnly) {
  RecordingFileSystem recording(disk_, root());
  replace_file(recording, root() / "state", as_bytes(new_));
  EXPECT_EQ(outcomes(recording), (std::set<std::string>{old_, new_}));
  for (std::uint64_t seed = 0; seed < 20; ++seed) {  // and when it has returned, only the new
    for (const CrashKind kind : kKinds) EXPECT_EQ(text_in(recording.tree_after({recording.operations(), kind, seed}), "state"), new_);
  }
}

TEST_F(RecordingFileSystemTest, MissingDataSyncIsCaught) {
  RecordingFileSystem recording(disk_, root());
  replace_carelessly(recording, false);
  const auto seen = outcomes(recording);
  EXPECT_TRUE(seen.contains(""));  // renamed, but no data
  EXPECT_GT(seen.size(), 4u);      // and torn ones
}

TEST_F(RecordingFileSystemTest, MissingFolderSyncIsCaught) {
  RecordingFileSystem recording(disk_, root());
  replace_carelessly(recording, true);
  EXPECT_EQ(text_in(recording.tree_after({recording.operations(), CrashKind::unsynced_lost, 0}), "state"), old_);
  EXPECT_EQ(text_in(recording.tree_after({recording.operations(), CrashKind::killed, 0}), "state"), new_);
}

TEST_F(RecordingFileSystemTest, RemovingBeforeRenamingIsCaught) {
  RecordingFileSystem recording(disk_, root());
  recording.remove(root() / "state");
  replace_carelessly(recording, true);
  recording.sync_directory(root());
  EXPECT_TRUE(outcomes(recording).contains("(missing)"));
}

TEST_F(RecordingFileSystemTest, LaterRenamesMaySurviveWithoutEarlierOnes) {
  replace_file(disk_, root() / "a", as_bytes("a"));
  replace_file(disk_, root() / "b", as_bytes("b"));
  RecordingFileSystem recording(disk_, root());
  recording.rename(root() / "a", root() / "a2");
  recording.rename(root() / "b", root() / "b2");
  std::set<std::pair<bool, bool>> seen;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const FileTree tree = recording.tree_after({2, CrashKind::reordered, seed});
    EXPECT_NE(tree.contains("a"), tree.contains("a2"));  // a rename never shows by half
    EXPECT_NE(tree.contains("b"), tree.contains("b2"));
    seen.emplace(tree.contains("a2"), tree.contains("b2"));
  }
  EXPECT_EQ(seen.size(), 4u);
}

TEST_F(RecordingFileSystemTest, ChainOfRenamesNeverDuplicatesAFile) {
  RecordingFileSystem recording(disk_, root());
  recording.rename(root() / "state", root() / "one");
  recording.rename(root() / "one", root() / "two");
  for (std::uint64_t seed = 0; seed < 40; ++seed) EXPECT_EQ(recording.tree_after({2, CrashKind::reordered, seed}).size(), 1u);
}

TEST_F(RecordingFileSystemTest, TornWritesFollowSectors) {
  RecordingFileSystem recording(disk_, root());
  {
    File file(recording, root() / "state", OpenMode::write);
    file.write_at(100, as_bytes(std::string(1500, 'n')));  // sectors 0 (part), 1, 2, 3 (part)
  }
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text = text_in(recording.tree_after({2, CrashKind::torn, seed}), "state");
    ASSERT_EQ(text.size(), 2000u);
    for (std::size_t i = 1; i < text.size(); ++i) {
      if (text[i] != text[i - 1]) {
        EXPECT_TRUE(i % 512 == 0 || i == 100 || i == 1600) << i;
      }
    }
    seen.insert(text);
  }
  EXPECT_EQ(seen.size(), 16u);  // every subset of the four
}

TEST_F(RecordingFileSystemTest, FoldersMoveWithTheirContent) {
  RecordingFileSystem recording(disk_, root());
  make_directories(recording, root() / "tmp");
  {
    File file(recording, root() / "tmp" / "shard", OpenMode::create);
    file.write_at(0, as_bytes("data"));
    file.sync();
  }
  recording.sync_directory(root() / "tmp");
  recording.rename(root() / "tmp", root() / "final");
  recording.sync_directory(root());
  const FileTree tree = recording.tree_after({recording.operations(), CrashKind::unsynced_lost, 0});
  EXPECT_EQ(text_in(tree, "final/shard"), "data");
  EXPECT_FALSE(tree.contains("tmp"));
  remove_tree(recording, root() / "final");
  EXPECT_EQ(recording.tree_after({recording.operations(), CrashKind::killed, 0}).size(), 1u);
  EXPECT_EQ(recording.tree_after({recording.operations(), CrashKind::unsynced_lost, 0}).size(), 3u);
}

TEST_F(RecordingFileSystemTest, ReplayWritesTheTreeAndKilledEqualsTheDisk) {
  RecordingFileSystem recording(disk_, root());
  make_directories(recording, root() / "x/y");
  File(recording, root() / "x/y/log", OpenMode::append).append(as_bytes("one "));
  File(recording, root() / "x/y/log", OpenMode::append).append(as_bytes("two"));
  replace_file(recording, root() / "state", as_bytes(new_));
  const Path target = folder_.path() / "replayed";
  recording.replay({recording.operations(), CrashKind::killed, 0}, disk_, target);
  EXPECT_EQ(read_tree(disk_, target), read_tree(disk_, root()));
  EXPECT_EQ(read_text(disk_, target / "x/y/log"), "one two");
}

TEST_F(RecordingFileSystemTest, OtherFoldersPassThroughUnrecorded) {
  RecordingFileSystem recording(disk_, root());
  replace_file(recording, folder_.path() / "elsewhere", as_bytes("x"));
  EXPECT_EQ(recording.operations(), 0);
  recording.status(root() / "state");
  ASSERT_EQ(recording.log().size(), 1u);
  EXPECT_EQ(to_string(recording.log()[0]), "status state");
}

}  // namespace
}  // namespace plimsoll::io
