// The program on other processors than this one: with fewer instructions by PLIMSOLL_ISA, and on processors that qemu plays.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/processor.h"
#include "cli/run_folder.h"

namespace plimsoll::tests {
namespace {

std::vector<double> losses(const RunFolder& folder) {
  std::vector<double> numbers;
  for (const std::string& loss : column(folder.read("out/metrics.jsonl"), "loss")) numbers.push_back(std::strtod(loss.c_str(), nullptr));
  return numbers;
}

std::vector<double> losses_with(const std::string& isa, const std::string& precision) {
  const RunFolder folder;
  const Ended ended = folder.plimsoll({"train", "run.json", "--set", "precision=" + precision}, {"PLIMSOLL_ISA=" + isa});
  EXPECT_EQ(ended.exit_code, 0) << isa << "\n" << ended.err;
  EXPECT_NE(ended.out.find(": " + isa), std::string::npos) << ended.out;
  return losses(folder);
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected, double bound, const std::string& what) {
  ASSERT_FALSE(expected.empty());
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], bound) << what << ", line " << i;
}

TEST(Processors, EveryInstructionSetThatIsHereTrainsAlike) {
  for (const auto& [precision, bound] : {std::pair{"f32", 1e-5}, std::pair{"bf16", 2e-2}}) {
    const std::vector<double> least = losses_with("avx2", precision);
    for (const base::Isa isa : base::levels_up_to(base::processor().best)) {
      const std::string name(base::name_of(isa));
      expect_near(losses_with(name, precision), least, bound, name + " " + precision);
    }
  }
}

TEST(Processors, AnInstructionSetThatIsNotHereIsRefused) {
  const RunFolder folder;
  const Ended ended = folder.plimsoll({"train", "run.json"}, {"PLIMSOLL_ISA=avx1024"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_NE(ended.err.find("PLIMSOLL_ISA is 'avx1024', expected what this processor can run: avx2"), std::string::npos) << ended.err;
}

TEST(Processors, AreTold) {
  const RunFolder folder;
  const Ended version = folder.plimsoll({"--version", "--verbose"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_NE(version.out.find(base::to_string(base::processor())), std::string::npos) << version.out;
  EXPECT_EQ(folder.plimsoll({"--version"}).out.find("processor"), std::string::npos);
  const Ended calibrate = folder.plimsoll({"calibrate", "--cores"}, {"PLIMSOLL_ISA=avx2"});
  EXPECT_EQ(calibrate.exit_code, 0);
  EXPECT_NE(calibrate.out.find("instructions " + base::processor().name + ": avx2"), std::string::npos) << calibrate.out;
  EXPECT_EQ(folder.plimsoll({"--verbose", "explain", "run.json"}).exit_code, 2);
}

class Played : public testing::Test {
 protected:
  void SetUp() override {
    if (find_program("qemu-x86_64").empty()) GTEST_SKIP() << "qemu-user is not installed";
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "qemu-user has no room for a sanitizer's shadow memory";
#endif
  }
  Ended plimsoll(const std::string& processor, const std::vector<std::string>& arguments) {
    std::vector<std::string> command{find_program("qemu-x86_64"), "-cpu", processor};
    for (const std::string& word : plimsoll_command(arguments)) command.push_back(word);
    // Without a policy the program would start itself anew, on the processor that is really here.
    return Child(command, folder_.path(), {"OMP_WAIT_POLICY=passive"}).wait();
  }
  RunFolder folder_;
};

TEST_F(Played, HaswellTrains) {
  const Ended ended = plimsoll("Haswell", {"train", "run.json", "--set", "precision=bf16", "--set", "steps=2"});
  EXPECT_EQ(ended.exit_code, 0) << ended.signal << ended.err;
  EXPECT_NE(ended.out.find("avx2 (avx512: the processor does not announce"), std::string::npos) << ended.out;
  std::vector<double> here = losses_with("avx2", "bf16");
  const std::vector<double> played = losses(folder_);
  here.resize(played.size());
  expect_near(played, here, 2e-2, "Haswell");
}

TEST_F(Played, NehalemIsRefused) {
  const Ended ended = plimsoll("Nehalem", {"train", "run.json"});
  EXPECT_EQ(ended.exit_code, 3) << ended.signal << ended.err;
  EXPECT_NE(ended.err.find("lacks AVX2"), std::string::npos) << ended.err;
  EXPECT_FALSE(folder_.exists("out"));
  EXPECT_EQ(plimsoll("Nehalem", {"--version", "--verbose"}).exit_code, 0);
}

}  // namespace
}  // namespace plimsoll::tests
