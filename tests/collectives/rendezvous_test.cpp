// Meeting by address and port: who is turned away, who did not come, who went away.
#include "collectives/rendezvous.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

#include <fmt/ranges.h>

#include "base/error.h"
#include "collectives/rendezvous_book.h"

namespace plimsoll::collectives {
namespace {

int free_port() {
  const Socket any = Socket::listen("127.0.0.1", 0);
  sockaddr_in address{};
  socklen_t length = sizeof address;
  getsockname(any.file(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

// What each rank was told; empty when it ended well.
std::vector<std::string> meet(
    std::vector<Launch> launches, const Rendezvous::Options& options,
    const std::function<void(Rendezvous&, int)>& body = [](Rendezvous&, int) {}) {
  const int port = free_port();
  std::vector<std::string> told(launches.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < launches.size(); ++i) {
      launches[i].port = port;
      threads.emplace_back([&, i] {
        try {
          Rendezvous rendezvous(launches[i], options);
          body(rendezvous, launches[i].rank);
        } catch (const base::Error& error) {
          told[i] = fmt::format("{}: {}", error.exit_code(), error.what());
        }
      });
    }
  }
  return told;
}

bool holds(const std::string& text, std::initializer_list<std::string> words) {
  return std::all_of(words.begin(), words.end(), [&](const std::string& word) { return text.find(word) != std::string::npos; });
}

TEST(Rendezvous, RanksMeetAndSeeEachOthersTexts) {
  const auto told =
      meet({{.rank = 0, .ranks = 3}, {.rank = 1, .ranks = 3}, {.rank = 2, .ranks = 3}}, {}, [](Rendezvous& rendezvous, int rank) {
        rendezvous.set(fmt::format("key {}", rank), std::string(static_cast<std::size_t>(10000 * rank), 'x'));
        for (int other = 0; other < 3; ++other) {
          EXPECT_EQ(rendezvous.wait(fmt::format("key {}", other)).size(), static_cast<std::size_t>(10000 * other));
        }
        EXPECT_EQ(rendezvous.get("nobody's"), std::nullopt);
        EXPECT_EQ(rendezvous.loss(), std::nullopt);
      });
  EXPECT_EQ(told, (std::vector<std::string>(3)));
}

TEST(Rendezvous, WhoeverDoesNotBelongIsTurnedAway) {
  const Rendezvous::Options brief{.join = 0.5};
  EXPECT_TRUE(holds(meet({{.rank = 0, .ranks = 2}, {.rank = 1, .ranks = 3}}, brief)[1], {"2: ", "WORLD_SIZE is 3 here and 2 on rank 0"}));
  const auto twice = meet({{.rank = 0, .ranks = 3}, {.rank = 1, .ranks = 3}, {.rank = 1, .ranks = 3}}, brief);
  EXPECT_TRUE(holds(twice[1] + twice[2], {"RANK 1 is taken"})) << twice[1] << twice[2];
  EXPECT_TRUE(holds(twice[0], {"4: ", "rank 2 of 3 did not come", "within 0.5 s"})) << twice[0];
  const auto jobs = meet({{.rank = 0, .ranks = 2, .token = "one"}, {.rank = 1, .ranks = 2, .token = "two"}}, brief);
  EXPECT_TRUE(holds(jobs[1], {"2: ", "another job"})) << jobs[1];
  EXPECT_TRUE(holds(jobs[0], {"4: ", "rank 1 of 2 did not come"})) << jobs[0];
}

// They belong to the job and cannot be part of it: nobody waits for them.
TEST(Rendezvous, RanksOfAnotherBuildOrNumberAreNamedByAll) {
  const auto start = std::chrono::steady_clock::now();
  const auto builds =
      meet({{.rank = 0, .ranks = 3, .build = "one"}, {.rank = 1, .ranks = 3, .build = "one"}, {.rank = 2, .ranks = 3, .build = "two"}}, {});
  for (const std::string& text : builds) EXPECT_TRUE(holds(text, {"4: ", "rank 2 is of another build: two, and rank 0 of one"})) << text;
  const auto numbers = meet({{.rank = 0, .ranks = 2}, {.rank = 1, .ranks = 3}}, {});
  EXPECT_TRUE(holds(numbers[0], {"4: ", "rank 1 was started with another number of ranks: 3, and rank 0 with 2"})) << numbers[0];
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Rendezvous, ARankThatFailedBeforeItMetTheOthersIsNamed) {
  for (const int failed : {0, 1}) {
    const int port = free_port();
    const auto start = std::chrono::steady_clock::now();
    std::jthread early([&] { tell_of_early_loss({.rank = failed, .ranks = 2, .port = port}, "failed: no file", 5.0); });
    try {
      const Rendezvous rendezvous({.rank = 1 - failed, .ranks = 2, .port = port}, {});
      ADD_FAILURE() << "it met a rank that had failed";
    } catch (const base::Error& error) {
      EXPECT_EQ(error.exit_code(), 4);
      EXPECT_TRUE(holds(error.what(), {fmt::format("rank {} failed: no file", failed)})) << error.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
  }
}

TEST(Rendezvous, RanksThatDoNotComeAreNamed) {
  const auto told = meet({{.rank = 0, .ranks = 4}, {.rank = 2, .ranks = 4}}, {.join = 0.3});
  for (const std::string& text : told) EXPECT_TRUE(holds(text, {"4: ", "ranks 1, 3 of 4 did not come"})) << text;
  const auto alone = meet({{.rank = 1, .ranks = 2}}, {.join = 0.3});
  EXPECT_TRUE(holds(alone[0], {"rank 0 did not answer", "MASTER_PORT"})) << alone[0];
}

TEST(Rendezvous, APortInUseIsSaid) {
  const Socket occupied = Socket::listen("127.0.0.1", 0);
  sockaddr_in address{};
  socklen_t length = sizeof address;
  getsockname(occupied.file(), reinterpret_cast<sockaddr*>(&address), &length);
  const Launch launch{.rank = 0, .ranks = 2, .port = ntohs(address.sin_port)};
  try {
    const Rendezvous rendezvous(launch, {});
    FAIL() << "it met on a port in use";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    EXPECT_TRUE(holds(error.what(), {"is in use", "MASTER_PORT"})) << error.what();
  }
}

TEST(Rendezvous, AFailureIsToldToAll) {
  const auto told =
      meet({{.rank = 0, .ranks = 3}, {.rank = 1, .ranks = 3}, {.rank = 2, .ranks = 3}}, {}, [](Rendezvous& rendezvous, int rank) {
        if (rank == 2) rendezvous.report_loss("failed: disk full");
        rendezvous.wait("never");
      });
  for (const std::string& text : told) EXPECT_TRUE(holds(text, {"4: ", "rank 2 failed: disk full"})) << text;
}

// A rank in a process of its own, which dies or stops.
std::string told_when(int signal) {
  const int port = free_port();
  const Rendezvous::Options options{.limits = {.heartbeat = 0.8, .progress = 20}};
  const pid_t child = fork();
  if (child == 0) {
    Rendezvous rendezvous({.rank = 1, .ranks = 2, .port = port}, options);
    for (;;) pause();
  }
  std::string told;
  try {
    Rendezvous rendezvous({.rank = 0, .ranks = 2, .port = port}, options);
    kill(child, signal);
    const auto start = std::chrono::steady_clock::now();
    try {
      rendezvous.wait("never");
    } catch (const base::Error& error) {
      told = error.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  } catch (const base::Error& error) {
    told = error.what();
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return told;
}

TEST(Rendezvous, ARankThatDiesOrStopsIsNamed) {
  EXPECT_TRUE(holds(told_when(SIGKILL), {"rank 1 is gone"}));
  EXPECT_TRUE(holds(told_when(SIGSTOP), {"rank 1 gave no sign of life for 0.8 s"}));
}

// What rank 0 says of refused connections.
class Refusals {
 public:
  std::function<void(const std::string&)> hearer() {
    return [this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      heard_.push_back(text);
    };
  }
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return heard_.size();
  }
  std::string all() {
    const std::lock_guard lock(mutex_);
    return fmt::format("{}", fmt::join(heard_, "\n"));
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> heard_;
};

bool becomes(const std::function<bool()>& holds) {
  for (int look = 0; look < 400 && !holds(); ++look) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return holds();
}

TEST(Rendezvous, StrangersAreRefusedAndToldOfAndDoNotDisturb) {
  const int port = free_port();
  Refusals refusals;
  const Launch job{.rank = 0, .ranks = 2, .port = port, .token = "secret"};
  Launch second = job;
  second.rank = 1;
  Launch spy = second;
  spy.token = "guess";
  std::string long_hello;
  append_text(long_hello, std::string(kLongestHello + 1, 'x'));
  const std::vector<std::string> noises{"GET / HTTP/1.1\r\n\r\n",
                                        "\xff\xff\xff\xff",
                                        std::string(4, '\0'),
                                        "xxx",
                                        "",
                                        long_hello,
                                        on_the_wire(frame_of('h', "1", greeting(spy))),
                                        on_the_wire(frame_of('g', "anything", ""))};
  std::jthread strangers([&] {
    for (const std::string& noise : noises) {
      const auto socket = Socket::connect("127.0.0.1", port, 2);
      ASSERT_TRUE(socket);
      EXPECT_GE(send(socket->file(), noise.data(), noise.size(), MSG_NOSIGNAL), 0);
    }
  });
  std::jthread one([&] { Rendezvous(second, {}).wait("done"); });
  Rendezvous zero(job, {.say = refusals.hearer()});
  strangers.join();
  EXPECT_TRUE(becomes([&] { return refusals.count() == noises.size(); })) << refusals.all();
  EXPECT_TRUE(holds(refusals.all(),
                    {"a connection from 127.0.0.1 port ", "was refused", "its token is not that of rank 0", "longer than is allowed",
                     "what no rank sends", "say hello first", "closed before it had shown the job's token"}))
      << refusals.all();
  zero.set("done", "");
  one.join();
  EXPECT_EQ(zero.loss(), std::nullopt);
}

// One that says half a word, and one that does not read, hold up nobody.
TEST(Rendezvous, SlowStrangersHoldUpNobody) {
  const int port = free_port();
  Refusals refusals;
  const Launch job{.rank = 0, .ranks = 1, .port = port};
  Rendezvous zero(job, {.limits = {.heartbeat = 30, .progress = 30}, .say = refusals.hearer()});
  const auto slow = Socket::connect("127.0.0.1", port, 2);
  ASSERT_TRUE(slow);
  EXPECT_EQ(send(slow->file(), "\x10\0\0", 3, MSG_NOSIGNAL), 3);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 200; ++i) zero.set("key", std::to_string(i));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  EXPECT_TRUE(becomes([&] { return refusals.count() == 1; }));
  EXPECT_TRUE(holds(refusals.all(), {"did not show the job's token within 5 s"})) << refusals.all();
  EXPECT_EQ(zero.loss(), std::nullopt);
}

TEST(Frames, ArePartedWhateverTheirPieces) {
  const std::string wire = on_the_wire("first") + on_the_wire("") + on_the_wire("second");
  for (std::size_t piece = 1; piece <= wire.size(); ++piece) {
    FrameReader reader(kLongestHello);
    std::vector<std::string> frames;
    for (std::size_t at = 0; at < wire.size(); at += piece) {
      reader.add(std::string_view(wire).substr(at, piece));
      while (const auto frame = reader.next()) frames.push_back(*frame);
    }
    EXPECT_EQ(frames, (std::vector<std::string>{"first", "", "second"})) << piece;
    EXPECT_FALSE(reader.broken());
  }
  FrameReader reader(10);
  reader.add(on_the_wire("eleven more"));
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.broken());
}

TEST(Launch, ComesFromTheVariables) {
  std::map<std::string, std::string> variables;
  const auto read = [&] {
    return launch_from([&](const char* name) { return variables.contains(name) ? variables[name].c_str() : nullptr; });
  };
  EXPECT_FALSE(read());
  const auto refusal = [&] {
    try {
      read();
    } catch (const base::Error& error) {
      EXPECT_EQ(error.exit_code(), 2);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  variables = {{"RANK", "1"}};
  EXPECT_TRUE(holds(refusal(), {"WORLD_SIZE is not set"}));
  variables = {{"RANK", "4"}, {"WORLD_SIZE", "4"}, {"MASTER_PORT", "1234"}};
  EXPECT_TRUE(holds(refusal(), {"RANK is \"4\", expected a number from 0 to 3"}));
  variables["RANK"] = "-1";
  EXPECT_TRUE(holds(refusal(), {"RANK is \"-1\""}));
  variables["RANK"] = "3x";
  EXPECT_TRUE(holds(refusal(), {"RANK is \"3x\""}));
  variables["RANK"] = "3";
  variables["MASTER_PORT"] = "70000";
  EXPECT_TRUE(holds(refusal(), {"MASTER_PORT is \"70000\""}));
  variables["MASTER_PORT"] = "1234";
  variables["MASTER_ADDR"] = "node7";
  variables["LOCAL_RANK"] = "2";
  const Launch launch = read().value();
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.ranks, 4);
  EXPECT_EQ(launch.local_rank, 2);
  EXPECT_EQ(launch.address, "node7");
  EXPECT_EQ(launch.port, 1234);
  EXPECT_EQ(launch.token, "");
  variables["SLURM_JOB_ID"] = "77";
  EXPECT_EQ(read()->token, "77");
  variables["PLIMSOLL_TOKEN"] = "secret";
  EXPECT_EQ(read()->token, "secret");
  variables["PLIMSOLL_TOKEN"] = std::string(2000, 'x');
  EXPECT_TRUE(holds(refusal(), {"PLIMSOLL_TOKEN has more than 1024"}));
}

}  // namespace
}  // namespace plimsoll::collectives
