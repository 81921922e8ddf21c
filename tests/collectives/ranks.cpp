// One rank, for tests that need processes: joins whatever started it, does what it is told and writes how it ended, with the time,
// to a file of its own.
//   collectives_ranks FOLDER few|random|long|messages|wire|loop|ends|fails|differs|wrong|stops-early|stops-late
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iostream>
#include <map>
#include <thread>

#include <fmt/format.h>

#include "base/error.h"
#include "collectives/agree.h"
#include "collectives/cases.h"
#include "collectives/join_for_test.h"

namespace plimsoll::collectives::tests {
namespace {

using base::DType;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Steps until something goes wrong; says when it is well under way.
std::string loop(Transport& transport, const std::string& folder) {
  const auto world = transport.make_world("data");
  std::vector<std::byte> data(4096);
  for (int step = 0;; ++step) {
    world->all_reduce(data, data, DType::f32, Reduction::sum);
    if (step == 20) std::ofstream(fmt::format("{}/ready-{}", folder, transport.rank())) << getpid() << '\n';
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::string ends(Transport& transport, const std::string&) {
  const auto world = transport.make_world("data");
  world->barrier();
  if (transport.rank() != 1) world->barrier();
  return "ended";
}

std::string fails(Transport& transport, const std::string&) {
  const auto world = transport.make_world("data");
  world->barrier();
  if (transport.rank() == 1) base::not_legal("layer 3 does not fit");
  world->barrier();
  return "ended";
}

// Where nothing but MPI itself waits: while a group is made, and when all is done.
std::string stops_early(Transport& transport, const std::string&) {
  if (transport.rank() == 1) std::raise(SIGSTOP);
  transport.make_world("data")->barrier();
  return "ended";
}

std::string stops_late(Transport& transport, const std::string&) {
  transport.make_world("data")->barrier();
  if (transport.rank() == 1) std::raise(SIGSTOP);
  return "ended";
}

std::string differs(Transport& transport, const std::string&) {
  const auto world = transport.make_world("handshake");
  agree(*world, {{"data", transport.rank() == 1 ? "other.bin" : "tokens.bin"}});
  return "agreed";
}

std::string calls_wrong(Transport& transport, const std::string&) {
  const auto world = transport.make_world("data");
  std::vector<std::byte> data(64);
  world->barrier();
  if (transport.rank() == 1) world->broadcast(data, DType::f32, 0);
  if (transport.rank() != 1) world->all_reduce(data, data, DType::f32, Reduction::sum);
  return "ended";
}

std::string wire(Transport& transport, const std::string&) {
  const auto group = transport.make_world("wire");
  const std::int64_t n = group->size(), me = group->rank(), count = 840 * 1001, whole = count * 4;
  std::vector<std::byte> a(static_cast<std::size_t>(whole)), b(a.size());
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(n), count / n);
  const auto own = std::span(b).first(static_cast<std::size_t>(whole / n));
  Traffic expected;
  const auto moved = [&](std::int64_t sent, std::int64_t received, const char* what) {
    expected.sent += sent;
    expected.received += received;
    if (group->traffic() == expected) return;
    throw Mistake(fmt::format("{}: {} and {} bytes, expected {} and {}", what, group->traffic().sent, group->traffic().received,
                              expected.sent, expected.received));
  };
  group->all_reduce(a, a, DType::f32, Reduction::sum);
  moved(2 * (n - 1) * whole / n, 2 * (n - 1) * whole / n, "all_reduce");
  group->reduce_scatter(a, own, counts, DType::f32, Reduction::sum);
  moved((n - 1) * whole / n, (n - 1) * whole / n, "reduce_scatter");
  group->all_gather(own, a, counts, DType::f32);
  moved((n - 1) * whole / n, (n - 1) * whole / n, "all_gather");
  group->broadcast(a, DType::f32, 0);
  moved(me == 0 ? (n - 1) * whole : 0, me == 0 ? 0 : whole, "broadcast");
  group->reduce(a, b, DType::f32, Reduction::sum, 0);
  moved(me == 0 ? 0 : whole, me == 0 ? (n - 1) * whole : 0, "reduce");
  group->all_to_all(a, counts, b, counts, DType::f32);
  moved((n - 1) * whole / n, (n - 1) * whole / n, "all_to_all");
  return "counted";
}

std::string run(Transport& transport, const std::string& folder, const std::string& mode) {
  if (mode == "long") return fmt::format("{:016x}", run_random(transport, 12, 11, 500000));  // longer than a window
  if (mode == "few") return fmt::format("{:016x}", run_cases(transport, {.lengths = {0, 7, 1025}}));
  if (mode == "random") return fmt::format("{:016x}", run_random(transport, 100, 7));
  if (mode == "messages") {
    run_messages(transport);
    return "arrived";
  }
  const std::map<std::string, std::string (*)(Transport&, const std::string&)> modes{{"loop", loop},
                                                                                     {"ends", ends},
                                                                                     {"fails", fails},
                                                                                     {"differs", differs},
                                                                                     {"wrong", calls_wrong},
                                                                                     {"wire", wire},
                                                                                     {"stops-early", stops_early},
                                                                                     {"stops-late", stops_late}};
  const auto found = modes.find(mode);
  if (found == modes.end()) base::bad_input("unknown mode {}", mode);
  return found->second(transport, folder);
}

int run_rank(const std::string& folder, const std::string& mode) {
  std::unique_ptr<Transport> transport = join_for_test({.progress = mode.starts_with("stops") ? 2.0 : 20.0});
  const int rank = transport->rank();
  int code = 0;
  std::string text;
  try {
    text = run(*transport, folder, mode);
  } catch (const base::Error& error) {
    code = error.exit_code();
    text = error.what();
  } catch (const std::exception& error) {
    code = 1;
    text = error.what();
  }
  std::ofstream(fmt::format("{}/rank-{}", folder, rank)) << code << ' ' << now_ms() << ' ' << text;
  if (code != 0) transport->abort(text, static_cast<base::ErrorKind>(code));
  return code;
}

}  // namespace
}  // namespace plimsoll::collectives::tests

int main(int count, char** arguments) {
  if (count != 3) return 2;
  try {
    return plimsoll::collectives::tests::run_rank(arguments[1], arguments[2]);
  } catch (const plimsoll::base::Error& error) {
    std::cerr << error.what() << '\n';
    return error.exit_code();
  }
}
