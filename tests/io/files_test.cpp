#include "io/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "io/log_file.h"
#include "io/posix_file_system.h"
#include "io/temporary_folder.h"
#include "support/io/faulty_file_system.h"

namespace plimsoll::io {
namespace {

class FilesTest : public ::testing::Test {
 protected:
  Path at(const std::string& name) const { return folder_.path() / name; }
  void put(const std::string& name, std::string_view text) { File(disk_, at(name), OpenMode::create).write_at(0, as_bytes(text)); }
  std::vector<std::string> glob(const std::string& pattern) {
    std::vector<std::string> names;
    for (const Path& path : expand_glob(disk_, at(pattern).string())) names.push_back(path.lexically_relative(folder_.path()).string());
    return names;
  }

  tests::TemporaryFolder folder_;
  PosixFileSystem disk_;
};

TEST_F(FilesTest, ReplacesWholeFiles) {
  replace_file(disk_, at("a"), as_bytes("first"));
  put("a.tmp", "left by a crash");
  replace_file(disk_, at("a"), as_bytes("second"));
  EXPECT_EQ(read_text(disk_, at("a")), "second");
  EXPECT_EQ(disk_.list(folder_.path()).size(), 1u);
  EXPECT_THROW(read_text(disk_, at("a"), 3), base::Error);
}

TEST_F(FilesTest, ReadsPipes) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  std::string long_text;
  for (int line = 0; line < 20'000; ++line) long_text += std::to_string(line) + "\n";
  for (const std::string& text : {std::string("{}"), std::string(), long_text}) {
    std::thread writer([&] { std::ofstream(at("pipe")) << text; });
    EXPECT_EQ(read_text(disk_, at("pipe")), text);
    writer.join();
  }
  std::thread writer([&] { std::ofstream(at("pipe")) << "too much"; });
  EXPECT_THROW(read_text(disk_, at("pipe"), 3), base::Error);
  writer.join();
  EXPECT_FALSE(read_text(disk_, "/proc/self/status").empty());
}

TEST_F(FilesTest, APipeIsWrittenIntoAndStaysOne) {
  const Path pipe = at("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] { std::getline(std::ifstream(pipe), read, '\0'); });
  replace_file(disk_, pipe, as_bytes("a trace"));
  reader.join();
  EXPECT_EQ(read, "a trace");
  EXPECT_EQ(disk_.list(folder_.path()), (std::vector<Entry>{{"pipe", EntryKind::other}}));
}

TEST_F(FilesTest, MakesAndRemovesTrees) {
  make_directories(disk_, at("x/y/z/"));
  make_directories(disk_, at("x/y"));
  put("x/y/file", "text");
  put("outside", "kept");
  std::filesystem::create_directory_symlink(folder_.path(), at("x/loop"));
  EXPECT_THROW(make_directories(disk_, at("outside/deeper")), base::Error);
  remove_tree(disk_, at("x/"));
  remove_tree(disk_, at("x"));
  EXPECT_EQ(disk_.list(folder_.path()).size(), 1u);
  EXPECT_EQ(read_text(disk_, at("outside")), "kept");
  remove_tree(disk_, at("outside"));
  EXPECT_TRUE(disk_.list(folder_.path()).empty());
}

TEST_F(FilesTest, GlobsAreSortedAndStayWithinComponents) {
  make_directories(disk_, at("d1"));
  make_directories(disk_, at("d2"));
  for (const char* name : {"d1/t_2.bin", "d1/t_1.bin", "d2/t_1.bin", "d2/other", "top.bin", ".hidden.bin"}) put(name, "x");
  EXPECT_EQ(glob("d1/t_*.bin"), (std::vector<std::string>{"d1/t_1.bin", "d1/t_2.bin"}));
  EXPECT_EQ(glob("d?/t_1.bin"), (std::vector<std::string>{"d1/t_1.bin", "d2/t_1.bin"}));
  EXPECT_EQ(glob("*.bin"), (std::vector<std::string>{"top.bin"}));
  EXPECT_EQ(glob("d[2]/o*"), (std::vector<std::string>{"d2/other"}));
  EXPECT_TRUE(glob("d*/none*").empty());
  EXPECT_TRUE(glob("d*/absent").empty());
  EXPECT_EQ(glob("plain"), (std::vector<std::string>{"plain"}));
}

TEST_F(FilesTest, LogTakesEachRecordAtOnce) {
  LogFile log(disk_, at("log"));
  log.append("one\n");
  EXPECT_EQ(read_text(disk_, at("log")), "one\n");
  log.append("two\n");
  EXPECT_EQ(read_text(disk_, at("log")), "one\ntwo\n");
}

TEST_F(FilesTest, RecordsOfALogWaitForRoom) {
  for (const FaultKind kind : {FaultKind::no_space, FaultKind::short_write}) {
    int waited = 0;
    for (std::int64_t k = 2;; ++k) {  // the first opens the file
      remove_tree(disk_, at("log"));
      FaultyFileSystem full(disk_, {.at = k, .kind = kind});
      int told = 0;
      {
        LogFile log(full, at("log"), {.on_full = [&](const IoError& error) { told += error.disk_full() ? 1 : 100; }});
        log.append("first\n");
        log.append("second\n");
        log.append("third\n");
        EXPECT_EQ(told, full.fired() ? 1 : 0);
      }
      EXPECT_EQ(read_text(disk_, at("log")), "first\nsecond\nthird\n");
      waited += told;
      if (!full.reached()) break;
    }
    EXPECT_EQ(waited, 3);
  }
}

TEST_F(FilesTest, ALogThatIsRemovedGoesOnInANewOne) {
  make_directories(disk_, at("run"));
  std::vector<std::string> gone;
  LogFile log(disk_, at("run/log"), {.on_gone = [&](const Path& path) { gone.push_back(path.string()); }});
  log.append("first\n");
  remove_tree(disk_, at("run"));
  log.append("second\n");
  log.append("third\n");
  log.sync();
  EXPECT_EQ(read_text(disk_, at("run/log")), "second\nthird\n");
  EXPECT_EQ(gone, (std::vector<std::string>{at("run/log").string()}));
}

TEST_F(FilesTest, SyncOfALogTellsThatThereIsNoRoom) {
  FaultyFileSystem full(disk_, {.at = 7, .kind = FaultKind::short_write});  // open; status, size, append twice
  LogFile log(full, at("log"));
  log.append("first\n");
  EXPECT_NO_THROW(log.append("second\n"));
  EXPECT_EQ(read_text(disk_, at("log")), "first\nsec");
  log.sync();
  EXPECT_EQ(read_text(disk_, at("log")), "first\nsecond\n");
  FaultyFileSystem broken(disk_, {.at = 4, .kind = FaultKind::io_error});
  LogFile other(broken, at("log"));
  EXPECT_THROW(other.append("third\n"), IoError);
}

}  // namespace
}  // namespace plimsoll::io
