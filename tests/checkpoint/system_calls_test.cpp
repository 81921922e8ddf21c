// Keeps the crash and fault tests honest: what a save asks of the kernel is what the seam says it did, no more and no less, and an
// error that the kernel gives is treated as one that the seam gives. The save runs in a child under strace.
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>

#include <fmt/format.h>

#include "checkpoint/states.h"
#include "support/io/recording_file_system.h"

namespace plimsoll::checkpoint {
namespace {

constexpr const char* kFolder = "PLIMSOLL_SAVE_FOLDER";
constexpr const char* kLog = "PLIMSOLL_SAVE_LOG";

// What the child does.
TEST(ChildUnderStrace, DISABLED_Save) {
  const char* folder = std::getenv(kFolder);
  if (folder == nullptr) GTEST_SKIP() << "run by the other tests of this file";
  io::PosixFileSystem disk;
  io::RecordingFileSystem recording(disk, folder);
  save_state(recording, folder, 3);
  std::ofstream log(std::getenv(kLog));
  for (const io::Operation& operation : recording.log()) {
    log << io::name_of(operation.verb) << '\t' << operation.path.string() << '\t' << operation.to.string() << '\t'
        << (operation.made ? "made" : "") << '\t' << operation.length << '\n';
  }
}

// What happens to the names and bytes below a folder. A file is written in pieces that nobody promised the size of, so bytes are added up.
struct Deeds {
  std::multiset<std::string> names;           // "rename a b", "sync c": each as often as it was done
  std::map<std::string, std::int64_t> bytes;  // written, by path

  bool operator==(const Deeds&) const = default;
};

void PrintTo(const Deeds& deeds, std::ostream* out) {
  for (const std::string& name : deeds.names) *out << name << '\n';
  for (const auto& [path, count] : deeds.bytes) *out << count << " bytes to " << path << '\n';
}

Deeds from_seam(const std::filesystem::path& log) {
  Deeds deeds;
  std::ifstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> part;
    std::size_t begin = 0;
    for (std::size_t tab = line.find('\t'); tab != std::string::npos; begin = tab + 1, tab = line.find('\t', begin))
      part.push_back(line.substr(begin, tab - begin));
    part.push_back(line.substr(begin));
    const auto& [verb, path] = std::tie(part[0], part[1]);
    if (verb == "open" && part[3] == "made") deeds.names.insert("make " + path);
    if (verb == "sync" || verb == "sync_directory") deeds.names.insert("sync " + path);
    if (verb == "rename") deeds.names.insert("rename " + path + " " + part[2]);
    if (verb == "remove") deeds.names.insert("remove " + path);
    if (verb == "make_directory") deeds.names.insert("directory " + path);
    if (verb == "write" || verb == "append") deeds.bytes[path] += std::stoll(part[4]);
  }
  return deeds;
}

// Lines such as  123 pwrite64(4</folder/file>, ..., 512, 0) = 512
Deeds from_kernel(const std::filesystem::path& trace, const std::string& folder) {
  Deeds deeds;
  const auto inside = [&](const std::string& path) {
    return path == folder ? std::string(".") : path.starts_with(folder + "/") ? path.substr(folder.size() + 1) : std::string("?");
  };
  const std::regex shape(R"(^\d+\s+(\w+)\((.*)\)\s+= (-?\d+).*$)");
  const std::regex quoted(R"re("([^"]*)")re");
  const std::regex opened(R"(^\d+<([^>]*)>)");
  std::ifstream lines(trace);
  for (std::string line; std::getline(lines, line);) {
    std::smatch call;
    if (line.find(folder) == std::string::npos || !std::regex_match(line, call, shape) || call[3].str().starts_with('-')) continue;
    const std::string name = call[1];
    const std::string arguments = call[2];
    std::vector<std::string> paths;
    for (std::sregex_iterator at(arguments.begin(), arguments.end(), quoted), end; at != end; ++at) paths.push_back(inside((*at)[1]));
    std::smatch file;
    const std::string path = std::regex_search(arguments, file, opened) ? inside(file[1]) : "";
    if (name == "openat" && arguments.find("O_CREAT") != std::string::npos) deeds.names.insert("make " + paths.at(0));
    if (name == "fsync" || name == "fdatasync") deeds.names.insert("sync " + path);
    if (name.starts_with("rename")) deeds.names.insert("rename " + paths.at(0) + " " + paths.at(1));
    if (name.starts_with("unlink") || name == "rmdir") deeds.names.insert("remove " + paths.at(0));
    if (name.starts_with("mkdir")) deeds.names.insert("directory " + paths.at(0));
    if (name == "write" || name.starts_with("pwrite") || name == "writev") deeds.bytes[path] += std::stoll(call[3]);
    if (name.starts_with("truncate") || name == "ftruncate" || name == "fallocate" || name.starts_with("link") || name == "symlink")
      deeds.names.insert(name + " " + path);
  }
  return deeds;
}

class SystemCalls : public testing::Test {
 protected:
  void SetUp() override {
    for (const std::int64_t step : {1, 2}) save_state(disk_, folder(), step);
    if (std::system("strace -o /dev/null true > /dev/null 2>&1") != 0) GTEST_SKIP() << "strace is not installed, or may not trace here";
  }

  std::filesystem::path folder() const { return temporary_.path() / "checkpoints"; }
  std::filesystem::path log() const { return temporary_.path() / "log"; }
  std::filesystem::path trace() const { return temporary_.path() / "trace"; }

  // The save's exit code, with strace's options for it. A sanitizer's search for leaks cannot be traced.
  int save(const std::string& options) {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
    const std::string command = fmt::format(
        "{}='{}' {}='{}' ASAN_OPTIONS=detect_leaks=0 strace -f -y -qq {} -o '{}' '{}' "
        "--gtest_also_run_disabled_tests --gtest_filter=ChildUnderStrace.DISABLED_Save > /dev/null 2>&1",
        kFolder, folder().string(), kLog, log().string(), options, trace().string(), self);
    return WEXITSTATUS(std::system(command.c_str()));
  }

  tests::TemporaryFolder temporary_;
  io::PosixFileSystem disk_;
};

TEST_F(SystemCalls, AreThoseOfTheSeam) {
  ASSERT_EQ(save("-s 1 -e trace=file,desc"), 0);
  const Deeds seam = from_seam(log());
  EXPECT_GT(seam.names.size(), 10u);
  EXPECT_GT(seam.bytes.size(), 1u);
  EXPECT_EQ(from_kernel(trace(), folder().string()), seam);
}

// Every call of a kind in turn, until the save has no more of them. A save that fails after it has named its folder may leave it there.
TEST_F(SystemCalls, ThatFailLeaveTheOlderCheckpoints) {
  const io::FileTree before = io::read_tree(disk_, folder());
  for (const std::string calls : {"fsync,fdatasync", "pwrite64", "rename,renameat,renameat2"}) {
    int failures = 0;
    for (int when = 1;; ++when) {
      SCOPED_TRACE(fmt::format("call {} of {}", when, calls));
      const int code =
          save(fmt::format("-e trace={0} -e inject={0}:error={1}:when={2}", calls, calls == "pwrite64" ? "ENOSPC" : "EIO", when));
      const bool injected = io::read_text(disk_, trace()).find("(INJECTED)") != std::string::npos;
      EXPECT_NO_THROW(verify(disk_, open(disk_, folder() / step_name(2))));
      EXPECT_GE(newest_step(disk_, folder()), code == 0 ? 3 : 2);
      failures += code == 0 ? 0 : 1;
      io::remove_tree(disk_, folder());
      io::write_tree(disk_, folder(), before);
      if (!injected) break;
    }
    EXPECT_GE(failures, 1) << calls;
  }
}

}  // namespace
}  // namespace plimsoll::checkpoint
