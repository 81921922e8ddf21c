// Tries every fault at every operation of replace_file: the old or the new content must survive each.
#include "support/io/faulty_file_system.h"

#include <gtest/gtest.h>

#include "io/files.h"
#include "io/posix_file_system.h"
#include "io/temporary_folder.h"

namespace plimsoll::io {
namespace {

constexpr FaultKind kKinds[] = {FaultKind::io_error, FaultKind::no_space, FaultKind::short_write, FaultKind::crash,
                                FaultKind::crash_midway};

TEST(FaultyFileSystem, EveryFaultAtEveryOperationKeepsOldOrNew) {
  PosixFileSystem disk;
  for (const FaultKind kind : kKinds) {
    int fired = 0;
    for (std::int64_t k = 1;; ++k) {
      const tests::TemporaryFolder folder;
      const Path path = folder.path() / "state";
      replace_file(disk, path, as_bytes("old"));
      FaultyFileSystem faulty(disk, {.at = k, .kind = kind});
      bool failed = false;
      try {
        replace_file(faulty, path, as_bytes("newer"));
      } catch (const IoError&) {
        failed = true;
        EXPECT_FALSE(kind == FaultKind::crash || kind == FaultKind::crash_midway);
      } catch (const CrashPoint& crash) {
        failed = true;
        EXPECT_EQ(crash.operation, k);
        EXPECT_THROW(faulty.list(folder.path()), CrashPoint);
      }
      const std::string now = read_text(disk, path);
      EXPECT_TRUE(now == "old" || now == "newer") << now;
      if (!failed) {
        EXPECT_EQ(now, "newer");
      }
      EXPECT_EQ(failed, faulty.fired());
      fired += faulty.fired() ? 1 : 0;
      if (!faulty.reached()) break;
      replace_file(disk, path, as_bytes("third"));  // debris does not stand in the way
      EXPECT_EQ(disk.list(folder.path()).size(), 1u);
    }
    EXPECT_GE(fired, kind == FaultKind::short_write ? 1 : 4);
  }
}

TEST(FaultyFileSystem, CountsWithoutAFault) {
  PosixFileSystem disk;
  const tests::TemporaryFolder folder;
  FaultyFileSystem counting(disk, {});
  EXPECT_FALSE(counting.status(folder.path() / "a").has_value());
  {
    File file(counting, folder.path() / "a", OpenMode::create);
    file.write_at(0, as_bytes("x"));
  }
  EXPECT_EQ(counting.operations(), 4);
  EXPECT_FALSE(counting.fired());
}

TEST(FaultyFileSystem, ShortWriteLeavesHalf) {
  PosixFileSystem disk;
  const tests::TemporaryFolder folder;
  FaultyFileSystem faulty(disk, {.at = 2, .kind = FaultKind::short_write});
  File file(faulty, folder.path() / "a", OpenMode::create);
  EXPECT_THROW(file.write_at(0, as_bytes("12345678")), IoError);
  file.close();
  EXPECT_EQ(read_text(disk, folder.path() / "a"), "1234");
}

TEST(FaultyFileSystem, NothingHappensAfterACrash) {
  PosixFileSystem disk;
  const tests::TemporaryFolder folder;
  FaultyFileSystem faulty(disk, {.at = 2, .kind = FaultKind::crash});
  File file(faulty, folder.path() / "a", OpenMode::create);
  EXPECT_THROW(file.write_at(0, as_bytes("1")), CrashPoint);
  EXPECT_THROW(file.write_at(0, as_bytes("2")), CrashPoint);
  EXPECT_THROW(faulty.remove(folder.path() / "a"), CrashPoint);
  EXPECT_EQ(disk.status(folder.path() / "a")->size, 0);
}

}  // namespace
}  // namespace plimsoll::io
