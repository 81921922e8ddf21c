// Ranks under mpirun: the same bits as threads, and failures named as far as the launcher allows.
#include "collectives/mpi/mpi.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "collectives/cases.h"
#include "collectives/local/threads.h"
#include "collectives/rank_files.h"

namespace plimsoll::collectives {
namespace {

using plimsoll::tests::TemporaryFolder;
using tests::end_of;

constexpr const char* kRanks = PLIMSOLL_BINARY_DIR "/tests/collectives/collectives_mpi_ranks";

bool holds(const std::string& text, std::initializer_list<std::string> words) {
  return std::all_of(words.begin(), words.end(), [&](const std::string& word) { return text.find(word) != std::string::npos; });
}

// Runs ranks and says how mpirun ended. What MPI leaves behind at its end is not ours: leaks are looked for with the other transports.
int mpirun(int ranks, const TemporaryFolder& folder, const std::string& mode) {
  const std::string command = fmt::format(
      "LSAN_OPTIONS=detect_leaks=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 mpirun --oversubscribe -n {} {} {} "
      "{} > {}/out 2>&1",
      ranks, kRanks, folder.path().string(), mode, folder.path().string());
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Mpi : public testing::Test {
 protected:
  void SetUp() override {
    if (mpi::why_missing()) GTEST_SKIP() << *mpi::why_missing();
  }
};

TEST_F(Mpi, TheSameBitsAsThreads) {
  for (const int ranks : {1, 2, 3}) {
    for (const std::string mode : {"few", "random"}) {
      const TemporaryFolder folder;
      ASSERT_EQ(mpirun(ranks, folder, mode), 0) << end_of(folder.path(), 0).text;
      std::vector<std::string> digests(static_cast<std::size_t>(ranks));
      local::run_threads(ranks, [&](Transport& transport) {
        const bool few = mode == "few";
        const std::uint64_t digest = few ? tests::run_cases(transport, {.lengths = {0, 7, 1025}}) : tests::run_random(transport, 100, 7);
        digests[static_cast<std::size_t>(transport.rank())] = fmt::format("{:016x}", digest);
      });
      for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(end_of(folder.path(), rank).text, digests[static_cast<std::size_t>(rank)]);
    }
  }
}

TEST_F(Mpi, LongTensorsMessagesAndBytes) {
  for (const char* mode : {"long", "messages", "wire"}) {
    const TemporaryFolder folder;
    EXPECT_EQ(mpirun(3, folder, mode), 0) << mode;
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(end_of(folder.path(), rank).code, 0) << mode << ": " << end_of(folder.path(), rank).text;
  }
}

TEST_F(Mpi, ARankThatFailsOrEndsOrDiffersIsNamed) {
  struct Fault {
    const char* mode;
    int code;  // of the ranks that did nothing wrong
    std::vector<std::string> words;
  };
  const Fault faults[] = {{"fails", 4, {"barrier #2", "rank 1 failed: layer 3 does not fit"}},
                          {"ends", 4, {"barrier #2", "rank 1 has ended"}},
                          {"wrong", 1, {"rank 1 asks for broadcast #2", "asks for all_reduce #2"}},
                          {"differs", 2, {"data: \"other.bin\" on rank 1"}}};
  for (const Fault& fault : faults) {
    const TemporaryFolder folder;
    EXPECT_NE(mpirun(2, folder, fault.mode), 0) << fault.mode;
    const tests::RankEnd end = end_of(folder.path(), 0);
    EXPECT_EQ(end.code, fault.code) << fault.mode << ": " << end.text;
    for (const std::string& word : fault.words) EXPECT_TRUE(holds(end.text, {word})) << fault.mode << ": " << end.text;
  }
}

// The launcher ends the rank that was stopped.
TEST_F(Mpi, ARankThatIsStoppedWhileOthersAreInsideMpiIsNotWaitedForForEver) {
  for (const auto& [mode, words] :
       {std::pair<const char*, const char*>{"stops-early", "rank 0 waited in vain in the making of group 'data'"},
        {"stops-late", "rank 0 waited in vain for the others to end"}}) {
    const TemporaryFolder folder;
    EXPECT_EQ(mpirun(2, folder, mode), 4) << mode;
    std::ifstream out(folder.path() / "out");
    const std::string text(std::istreambuf_iterator<char>(out), {});
    EXPECT_TRUE(holds(text, {words, "within the limit of 2 s"})) << mode << ": " << text;
  }
}

TEST(MpiLauncher, IsKnownByItsVariables) {
  EXPECT_EQ(mpi::launched_by(), std::nullopt);
  setenv("PMI_RANK", "0", 1);
  EXPECT_EQ(mpi::launched_by(), "PMI_RANK");
  unsetenv("PMI_RANK");
}

}  // namespace
}  // namespace plimsoll::collectives
