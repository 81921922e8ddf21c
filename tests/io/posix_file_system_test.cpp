#include "io/posix_file_system.h"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>
#include <fstream>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>

#include "io/files.h"
#include "io/lost_page.h"
#include "io/temporary_folder.h"
#include "io/transfer.h"

namespace plimsoll::io {
namespace {

std::string text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

class PosixFileSystemTest : public ::testing::Test {
 protected:
  Path at(const std::string& name) const { return folder_.path() / name; }
  void put(const std::string& name, std::string_view text) { File(disk_, at(name), OpenMode::create).write_at(0, as_bytes(text)); }

  tests::TemporaryFolder folder_;
  PosixFileSystem disk_;
};

template <typename Action>
IoError expect_io_error(int code, Action&& action) {
  try {
    action();
  } catch (const IoError& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error;
  }
  ADD_FAILURE() << "no error";
  return IoError("do", "nothing", code);
}

TEST_F(PosixFileSystemTest, WritesAndReadsByOffset) {
  File file(disk_, at("a"), OpenMode::create);
  file.write_at(3, as_bytes("defg"));
  file.write_at(0, as_bytes("abc"));
  file.sync();
  EXPECT_EQ(file.size(), 7);
  std::string out(4, '?');
  EXPECT_EQ(file.read_at(5, std::as_writable_bytes(std::span(out))), 2u);
  EXPECT_EQ(out, "fg??");
  EXPECT_THROW(file.read_exactly(5, std::as_writable_bytes(std::span(out))), base::Error);
  file.close();
  EXPECT_EQ(read_text(disk_, at("a")), "abcdefg");
}

TEST_F(PosixFileSystemTest, CreateIsExclusiveAndAppendMakesOrContinues) {
  put("a", "one");
  const IoError error = expect_io_error(EEXIST, [&] { File(disk_, at("a"), OpenMode::create); });
  EXPECT_EQ(error.kind(), base::ErrorKind::bad_input);
  EXPECT_NE(std::string(error.what()).find(at("a").string()), std::string::npos);
  EXPECT_NE(std::string(error.what()).find("File exists"), std::string::npos);
  File(disk_, at("log"), OpenMode::append).append(as_bytes("x\n"));
  File(disk_, at("log"), OpenMode::append).append(as_bytes("y\n"));
  EXPECT_EQ(read_text(disk_, at("log")), "x\ny\n");
}

TEST_F(PosixFileSystemTest, MissingFilesAndFoldersAreBadInput) {
  EXPECT_EQ(expect_io_error(ENOENT, [&] { File(disk_, at("none"), OpenMode::read); }).kind(), base::ErrorKind::bad_input);
  expect_io_error(ENOENT, [&] { disk_.map(at("none")); });
  expect_io_error(ENOENT, [&] { disk_.list(at("none")); });
  expect_io_error(EISDIR, [&] { File(disk_, folder_.path(), OpenMode::read); });
  expect_io_error(EISDIR, [&] { disk_.map(folder_.path()); });
  EXPECT_FALSE(disk_.status(at("none")).has_value());
  EXPECT_FALSE(disk_.status(at("none/deeper")).has_value());
}

TEST_F(PosixFileSystemTest, AMappedFileThatIsCutShortIsNoticed) {
  std::ofstream(at("cut")) << std::string(10'000, 'x');
  const Mapping mapping = disk_.map(at("cut"));
  EXPECT_NO_THROW(mapping.check_size());
  std::filesystem::resize_file(at("cut"), 20'000);
  EXPECT_NO_THROW(mapping.check_size());
  std::filesystem::resize_file(at("cut"), 5'000);
  EXPECT_THROW(mapping.check_size(), base::Error);
  EXPECT_NO_THROW(Mapping().check_size());
}

TEST_F(PosixFileSystemTest, AMappedFileThatIsWrittenToIsNoticed) {
  std::ofstream(at("a")) << std::string(10'000, 'x');
  const auto before = std::filesystem::last_write_time(at("a"));
  const Mapping mapping = disk_.map(at("a"));
  EXPECT_NO_THROW(mapping.check_unchanged());
  std::fstream(at("a"), std::ios::in | std::ios::out) << "other";
  std::filesystem::last_write_time(at("a"), before + std::chrono::milliseconds(10));  // the clock of files is coarse
  EXPECT_NO_THROW(mapping.check_size());
  EXPECT_THROW(mapping.check_unchanged(), base::Error);
  std::filesystem::resize_file(at("a"), 5'000);
  EXPECT_THROW(mapping.check_unchanged(), base::Error);
  EXPECT_NO_THROW(Mapping().check_unchanged());
}

// As it happens to one who has just looked at the size.
TEST_F(PosixFileSystemTest, APageThatIsGoneEndsTheProcessWithItsReason) {
  std::ofstream(at("cut short")) << std::string(100'000, 'x');
  const Mapping mapping = disk_.map(at("cut short"));
  EXPECT_EXIT(
      {
        end_on_lost_page();
        std::filesystem::resize_file(at("cut short"), 10);
        const volatile std::byte lost = mapping.bytes()[90'000];
        std::exit(static_cast<int>(lost));
      },
      testing::ExitedWithCode(2), "plimsoll: '.*cut short' was cut short while it was read");
  EXPECT_EXIT((end_on_lost_page(), std::raise(SIGBUS)), testing::KilledBySignal(SIGBUS), "");
}

TEST_F(PosixFileSystemTest, PartsOfAMappedFileAreReadAsTheyAreMapped) {
  std::string text(1'000'003, '\0');
  for (std::size_t at = 0; at < text.size(); ++at) text[at] = static_cast<char>(at * at / 7);
  std::ofstream(at("a"), std::ios::binary) << text;
  const Mapping mapping = disk_.map(at("a"));
  const std::span<const std::byte> part = mapping.bytes().subspan(4'097, 900'001);
  EXPECT_TRUE(mapping.in_memory(part));  // it has just been written
  std::vector<std::byte> read(part.size()), copied(part.size());
  mapping.read(part, read.data());
  mapping.let_go(part);
  mapping.copy(part, copied.data());
  EXPECT_EQ(text_of(read), text.substr(4'097, 900'001));
  EXPECT_EQ(copied, read);
  std::filesystem::resize_file(at("a"), 500'000);
  EXPECT_THROW(mapping.read(part, read.data()), base::Error);
}

// What the process has in memory of files, in pages.
std::int64_t resident_of_files() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0, resident = 0, shared = 0;
  statm >> size >> resident >> shared;
  return shared;
}

TEST_F(PosixFileSystemTest, WhatIsLetGoOfIsNotTheProcesssMemory) {
  constexpr std::size_t kSize = std::size_t{32} << 20;
  constexpr std::size_t kApart = std::size_t{1} << 16;
  put("a", std::string(kSize, 'x'));
  const Mapping mapping = disk_.map(at("a"));
  const std::int64_t before = resident_of_files();
  const auto pages = static_cast<std::int64_t>(kSize / static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
  for (std::size_t at = 100; at < kSize; at += kApart) EXPECT_EQ(mapping.bytes()[at], std::byte{'x'});
  const std::int64_t touched = resident_of_files() - before;
  EXPECT_GE(touched, static_cast<std::int64_t>(kSize / kApart));
  for (std::size_t at = 100; at < kSize; at += kApart) {
    EXPECT_EQ(mapping.bytes()[at], std::byte{'x'});
    mapping.let_go(mapping.bytes().subspan(at, 1));
  }
  EXPECT_LT(resident_of_files() - before, pages / 64);
}

TEST_F(PosixFileSystemTest, MappingOutlivesTheName) {
  put("a", "mapped");
  const Mapping mapping = disk_.map(at("a"));
  disk_.remove(at("a"));
  EXPECT_EQ(text_of(mapping.bytes()), "mapped");
  put("empty", "");
  EXPECT_TRUE(disk_.map(at("empty")).bytes().empty());
}

TEST_F(PosixFileSystemTest, NamesAreListedRenamedAndRemoved) {
  disk_.make_directory(at("folder"));
  put("b", "bb");
  put("a", "a");
  std::filesystem::create_symlink(at("b"), at("link"));
  const std::vector<Entry> expected{
      {"a", EntryKind::file}, {"b", EntryKind::file}, {"folder", EntryKind::directory}, {"link", EntryKind::other}};
  EXPECT_EQ(disk_.list(folder_.path()), expected);
  EXPECT_EQ(disk_.status(at("link"))->kind, EntryKind::file);
  EXPECT_EQ(disk_.status(at("b"))->size, 2);
  disk_.rename(at("a"), at("b"));
  disk_.sync_directory(folder_.path());
  EXPECT_EQ(read_text(disk_, at("b")), "a");
  EXPECT_EQ(disk_.list(folder_.path()).size(), 3u);
  disk_.remove(at("folder"));
  EXPECT_FALSE(disk_.status(at("folder")).has_value());
  expect_io_error(EEXIST, [&] {
    disk_.make_directory(at("again"));
    disk_.make_directory(at("again"));
  });
}

TEST_F(PosixFileSystemTest, FreeSpaceIsPositive) { EXPECT_GT(disk_.free_space(folder_.path()).count, 0); }

TEST_F(PosixFileSystemTest, FullDeviceSaysSo) {
  if (!disk_.status("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  File full(disk_, "/dev/full", OpenMode::append);
  const IoError error = expect_io_error(ENOSPC, [&] { full.append(as_bytes("text")); });
  EXPECT_TRUE(error.disk_full());
  EXPECT_EQ(error.kind(), base::ErrorKind::other);
}

TEST_F(PosixFileSystemTest, FileSizeLimitCutsAWriteShort) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  {
    File file(disk_, at("limited"), OpenMode::create);
    const std::string text(3000, 'x');
    expect_io_error(EFBIG, [&] { file.write_at(0, as_bytes(text)); });
    EXPECT_EQ(file.size(), 1000);
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
}

TEST_F(PosixFileSystemTest, MovedFilesCloseOnce) {
  File first(disk_, at("a"), OpenMode::create);
  File second(std::move(first));
  second.write_at(0, as_bytes("x"));
  File third(disk_, at("b"), OpenMode::create);
  third = std::move(second);
  third.write_at(1, as_bytes("y"));
  third.close();
  third.close();  // no harm
  EXPECT_EQ(read_text(disk_, at("a")), "xy");
}

TEST(Transfer, ContinuesAfterPartialAndInterruptedCalls) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::string source(random() % 300, '\0');
    for (char& letter : source) letter = static_cast<char>(random());
    std::string target;
    const TransferResult result =
        transfer_fully(std::span<const char>(source), [&](std::size_t done, std::span<const char> rest) -> std::int64_t {
          EXPECT_EQ(done, target.size());
          if (random() % 3 == 0) {
            errno = EINTR;
            return -1;
          }
          const std::size_t count = 1 + random() % rest.size();
          target.append(rest.data(), count);
          return static_cast<std::int64_t>(count);
        });
    EXPECT_EQ(result.error, 0);
    EXPECT_EQ(result.moved, source.size());
    EXPECT_EQ(target, source);
  }
}

TEST(Transfer, StopsAtEndOfFileAndAtErrors) {
  char buffer[8];
  EXPECT_EQ(transfer_fully(std::span<char>(buffer), [](std::size_t done, auto) -> std::int64_t { return done < 3 ? 3 : 0; }).moved, 3u);
  const TransferResult failed = transfer_fully(std::span<char>(buffer), [](std::size_t done, auto) -> std::int64_t {
    if (done == 0) return 5;
    errno = EIO;
    return -1;
  });
  EXPECT_EQ(failed.moved, 5u);
  EXPECT_EQ(failed.error, EIO);
}

}  // namespace
}  // namespace plimsoll::io
