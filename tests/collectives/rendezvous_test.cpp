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

#include "base/error.h"

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
  EXPECT_TRUE(holds(jobs[1], {"another job"})) << jobs[1];
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

TEST(Rendezvous, StrangersDoNotDisturb) {
  const auto told = meet({{.rank = 0, .ranks = 2}, {.rank = 1, .ranks = 2}}, {}, [](Rendezvous& rendezvous, int rank) {
    if (rank == 0) rendezvous.set("first", "1");
    rendezvous.wait("first");
    EXPECT_EQ(rendezvous.loss(), std::nullopt);
  });
  EXPECT_EQ(told, (std::vector<std::string>(2)));
  const int port = free_port();
  std::jthread strangers([&] {
    for (const std::string& noise :
         {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\xff\xff\xff\xff"), std::string(4, '\0'), std::string(3, 'x')}) {
      const auto socket = Socket::connect("127.0.0.1", port, 2);
      ASSERT_TRUE(socket);
      EXPECT_GE(send(socket->file(), noise.data(), noise.size(), MSG_NOSIGNAL), 0);
    }
  });
  std::jthread one([&] { Rendezvous({.rank = 1, .ranks = 2, .port = port}, {}).wait("done"); });
  Rendezvous zero({.rank = 0, .ranks = 2, .port = port}, {});
  strangers.join();
  zero.set("done", "");
  one.join();
  EXPECT_EQ(zero.loss(), std::nullopt);
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
}

}  // namespace
}  // namespace plimsoll::collectives
