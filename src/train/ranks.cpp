#include "train/ranks.h"

#include <link.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <new>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "base/crc32c.h"
#include "base/json.h"
#include "collectives/agree.h"
#include "collectives/launch.h"
#include "collectives/local/processes.h"
#include "collectives/local/threads.h"
#include "collectives/mpi/mpi.h"
#include "collectives/nccl/nccl.h"
#include "collectives/rendezvous.h"
#include "config/config.h"
#include "io/files.h"
#include "io/posix_file_system.h"
#include "strategy/legality.h"
#include "strategy/schedules/csv.h"
#include "train/setup/setup.h"

namespace plimsoll::train {

namespace {

constexpr std::chrono::milliseconds kLook{20};
constexpr std::chrono::milliseconds kToHear{700};      // of another rank that met the same error
constexpr std::chrono::milliseconds kToBeEnded{3000};  // by the launcher, once another rank has spoken and ended
constexpr double kToCome = 60.0;                       // seconds, at most, until all ranks have met
constexpr double kToTell = 5.0;                        // seconds that a rank that failed early tries to reach the others

bool has_met = false;  // this rank went to meet the others; what ends it since then, they hear from its transport

// A whole number in an environment variable; nothing when there is none or it is not one.
std::optional<std::int64_t> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  const std::string_view view = text;
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (status != std::errc{} || end != view.data() + view.size()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> first_number(std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    if (const std::optional<std::int64_t> value = number_in(variable)) return value;
  }
  return std::nullopt;
}

// Of this process among those that were started together; 0 when it was started by hand.
std::int64_t own_number() { return first_number({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK"}).value_or(0); }

void require_size(const collectives::Transport& transport, const config::Run& run) {
  const std::int64_t wanted = run.strategy_auto ? 1 : run.strategy.ranks();
  if (transport.size() == wanted) return;
  const std::string start = ranks_started() > 0 ? fmt::format("{} ({} -n {})", wanted, launcher_name(), wanted) : fmt::format("{}", wanted);
  base::not_legal("found {} ranks ({}) for a strategy of {} ranks ({}); start {}, or change the strategy", transport.size(),
                  transport.description(), wanted, strategy::mesh_text(run.strategy), start);
}

// The linker's own digest of this program; empty where it left none.
std::string build_id() {
  std::string digits;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        for (int index = 0; index < info->dlpi_phnum; ++index) {
          const auto& segment = info->dlpi_phdr[index];
          if (segment.p_type != PT_NOTE) continue;
          const auto* at = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
          const char* end = at + segment.p_memsz;
          while (at + sizeof(ElfW(Nhdr)) <= end) {
            const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
            const char* data = at + sizeof *note + (note->n_namesz + 3) / 4 * 4;
            if (note->n_type == NT_GNU_BUILD_ID && data + note->n_descsz <= end) {
              for (std::size_t byte = 0; byte < note->n_descsz; ++byte)
                *static_cast<std::string*>(out) += fmt::format("{:02x}", static_cast<unsigned char>(data[byte]));
              return 1;
            }
            at = data + (note->n_descsz + 3) / 4 * 4;
          }
        }
        return 1;  // the program itself comes first; libraries do not count
      },
      &digits);
  return digits;
}

std::string build_words() { return PLIMSOLL_VERSION " " + build_id(); }

// Every setting as a field of its own, so that the one that differs is named.
void add_settings(std::vector<collectives::Field>& fields, const std::string& key, const base::Json& json) {
  if (!json.is_object()) return fields.push_back({key, base::write_json(json)});
  for (const base::JsonMember& member : json.as_object())
    add_settings(fields, key.empty() ? member.key : fmt::format("{}.{}", key, member.key), member.value);
}

// Files, programs and command lines may differ from machine to machine; a run that mixes them must not start.
void agree_on_run(collectives::Transport& transport, const RankedRun& ranked) {
  const config::Run& run = ranked.run;
  const std::unique_ptr<collectives::Group> everybody = transport.make_world("handshake");
  std::vector<collectives::Field> fields{
      {"build", build_words()}, {"OMP_NUM_THREADS", std::getenv("OMP_NUM_THREADS") == nullptr ? "" : std::getenv("OMP_NUM_THREADS")}};
  fields.insert(fields.end(), ranked.also.begin(), ranked.also.end());
  add_settings(fields, "", config::to_json(run));
  // The orders in a file say which messages ranks wait for.
  io::PosixFileSystem file_system;
  if (const auto schedule = schedule_of(file_system, run)) {
    const std::string text = strategy::schedules::write_csv(*schedule);
    const auto lines = std::count(text.begin(), text.end(), '\n');
    fields.push_back({"strategy.schedule's file", fmt::format("{} lines of checksum {:08x}", lines, base::crc32c(text))});
  }
  collectives::agree(*everybody, fields);
}

collectives::Limits limits_of(const config::Run& run) { return {.heartbeat = run.silence_limit, .progress = run.wait_limit}; }

// The name is the same for all ranks but for the number, so that whoever speaks first can tell where all of them are.
std::string call_log_path(const config::Run& run, std::string_view rank) { return fmt::format("{}/calls-of-rank-{}.txt", run.out, rank); }

// What this rank did last, for whoever looks for the one that is behind. It comes on top of an error, so it fails silently.
bool write_calls(const config::Run& run, const collectives::Transport& transport) {
  try {
    io::PosixFileSystem file_system;
    io::make_directories(file_system, run.out);
    io::replace_file(file_system, call_log_path(run, fmt::format("{}", transport.rank())),
                     io::as_bytes(transport.calls().text(transport.rank(), transport.size())));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// What the user mends where it is named: what other ranks did last tells nothing more.
bool is_users(base::ErrorKind kind) { return kind == base::ErrorKind::bad_input || kind == base::ErrorKind::not_legal; }

// Another rank that is lost leaves every other one's last calls behind.
void noting_losses(collectives::Transport& transport, const config::Run& run, const std::function<void(collectives::Transport*)>& body) {
  try {
    body(&transport);
  } catch (const base::Error& error) {
    if (error.kind() != base::ErrorKind::peer_lost) throw;
    if (const auto failure = transport.failure_elsewhere(); failure && is_users(failure->kind)) throw;
    if (!write_calls(run, transport)) throw;
    base::fail(error.kind(), "{}; what this rank did last is in {}", error.what(), call_log_path(run, fmt::format("{}", transport.rank())));
  }
}

void as_rank(collectives::Transport& transport, const RankedRun& ranked, const std::function<void(collectives::Transport*)>& body) {
  require_size(transport, ranked.run);
  noting_losses(transport, ranked.run, [&](collectives::Transport* at) {
    agree_on_run(*at, ranked);
    body(at);
  });
}

// Whether this rank's error is its to say, once the others know of it. A rank that failed by itself says so; of several that did, as when
// all meet the same error, the lowest. One that only waited for it is quiet, and stays until the launcher ends it: were it the first
// to go, the one that has something to say would be ended with it.
bool is_mine_to_say(collectives::Transport& transport, base::ErrorKind kind) {
  const auto told_by_another = [&] {
    const auto failure = transport.failure_elsewhere();
    if (!failure || failure->kind == base::ErrorKind::peer_lost) return false;
    return kind == base::ErrorKind::peer_lost || failure->rank < transport.rank();
  };
  if (kind != base::ErrorKind::peer_lost && transport.rank() > 0) {
    for (auto waited = kLook; waited < kToHear && !told_by_another(); waited += kLook) std::this_thread::sleep_for(kLook);
  }
  if (!told_by_another()) return true;
  std::this_thread::sleep_for(kToBeEnded);
  return false;
}

// A rank in a process of its own: what goes wrong here must reach the others before this process ends.
void as_process(std::unique_ptr<collectives::Transport> transport, const RankedRun& ranked,
                const std::function<void(collectives::Transport*)>& body) {
  try {
    as_rank(*transport, ranked, body);
  } catch (const std::exception& error) {
    const base::ErrorKind kind = collectives::kind_of(error);
    transport->abort(error.what(), kind);
    if (collectives::local::is_supervised()) throw;  // the supervisor says it
    const bool speaks = is_mine_to_say(*transport, kind);
    const bool names_itself = transport->rank() > 0 && kind != base::ErrorKind::peer_lost;
    throw RankError(kind, fmt::format("{}{}", names_itself ? fmt::format("rank {}: ", transport->rank()) : "", words_of(error)), speaks);
  }
}

// Which of the ranks with a GPU each this is: by the variables of torchrun and its like, or by those of MPI's launcher.
collectives::Launch gpu_launch(const config::Run& run) {
  if (auto launch = collectives::launch_from_environment()) return *launch;
  const auto rank = first_number({"OMPI_COMM_WORLD_RANK", "PMI_RANK"});
  const auto ranks = first_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
  if (!rank || !ranks) {
    base::bad_input(
        "{}: \"transport\" is \"nccl\", but neither RANK and WORLD_SIZE nor a launcher of MPI programs say which rank this is; start one "
        "process for each GPU by torchrun or mpirun",
        run.where("transport"));
  }
  const std::string world = fmt::format("{}", *ranks);
  const std::string own = fmt::format("{}", *rank);
  const std::string local = fmt::format("{}", first_number({"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"}).value_or(*rank));
  return *collectives::launch_from([&](const char* name) -> const char* {
    const std::string_view wanted = name;
    if (wanted == "RANK") return own.c_str();
    if (wanted == "WORLD_SIZE") return world.c_str();
    if (wanted == "LOCAL_RANK") return local.c_str();
    if (wanted == "MASTER_ADDR" && std::getenv(name) == nullptr) return "127.0.0.1";  // one machine, unless told where the first is
    if (wanted == "MASTER_PORT" && std::getenv(name) == nullptr) return "29500";
    return std::getenv(name);
  });
}

std::string lost_words(const config::Run& run, int rank, const std::string& loss, bool kept) {
  std::string words = fmt::format("rank {} waited in vain: {}", rank, loss);
  if (!kept) return words;
  return fmt::format("{}; what this rank did last is in {}", words, call_log_path(run, fmt::format("{}", rank)));
}

std::unique_ptr<collectives::Transport> join_nccl(const RankedRun& ranked) {
  const config::Run& run = ranked.run;
  if (run.device == config::Device::cpu)
    base::bad_input("{}: \"transport\" is \"nccl\", which moves the memory of GPUs, but \"device\" is \"cpu\"; use \"mpi\" or \"local\"",
                    run.where("transport"));
  if (const auto why = collectives::nccl::why_missing()) base::bad_input("{}: \"transport\" is \"nccl\": {}", run.where("transport"), *why);
  collectives::Launch launch = gpu_launch(run);
  launch.build = build_words();
  has_met = true;
  return collectives::nccl::join(launch, {.limits = limits_of(run),
                                          .canonical = run.communication.sums == config::Sums::canonical,
                                          .join = std::min(kToCome, run.wait_limit),
                                          .say = ranked.complain,
                                          .last_words = [&ranked](const collectives::Transport& transport, const std::string& loss) {
                                            const bool kept = write_calls(ranked.run, transport);
                                            if (ranked.complain) ranked.complain(lost_words(ranked.run, transport.rank(), loss, kept));
                                          }});
}

}  // namespace

std::int64_t ranks_started() {
  return std::max<std::int64_t>(0, first_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE"}).value_or(0));
}

std::string launcher_name() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) return "mpirun";
  if (std::getenv("SLURM_STEP_ID") != nullptr) return "srun";
  return std::getenv("PMI_SIZE") != nullptr ? "mpirun" : "torchrun";
}

void run_ranks(const RankedRun& ranked, const std::function<void(collectives::Transport*)>& body) {
  const config::Run& run = ranked.run;
  if (ranked.trains && !run.strategy_auto) strategy::require_legal(run.strategy, run.micro_batches());  // before anything starts
  if (collectives::local::is_supervised()) return as_process(collectives::local::join_processes(), ranked, body);
  if (run.transport == config::Transport::nccl) return as_process(join_nccl(ranked), ranked, body);
  if (collectives::mpi::launched_by()) {
    if (run.transport == config::Transport::local)
      base::bad_input("{}: \"transport\" is \"local\", but {} says that a launcher of MPI programs started this; use \"auto\" or \"mpi\"",
                      run.where("transport"), *collectives::mpi::launched_by());
    return as_process(collectives::mpi::join(limits_of(run)), ranked, body);
  }
  if (run.transport == config::Transport::mpi)
    base::bad_input("{}: \"transport\" is \"mpi\", but no launcher of MPI programs started this; use mpirun -n {} plimsoll ...",
                    run.where("transport"), run.strategy.ranks());
  if (const auto launch = collectives::launch_from_environment();
      launch && launch->ranks > 1 && run.transport == config::Transport::automatic) {
    base::bad_input(
        "WORLD_SIZE says that {} processes were started, which without MPI can only join by NCCL; use \"transport\": \"nccl\" (a GPU for "
        "each), mpirun instead, or one process with --ranks {}",
        launch->ranks, launch->ranks);
  }
  const auto ranks = static_cast<int>(run.strategy_auto ? 1 : run.strategy.ranks());
  if (ranks == 1) return body(nullptr);
  if (!ranked.processes.empty()) {
    std::exit(collectives::local::supervise(
        {.ranks = ranks, .command = ranked.processes, .limits = limits_of(run), .say = [&](const std::string& text, base::ErrorKind kind) {
           if (!ranked.complain) return;
           if (is_users(kind)) return ranked.complain(text);
           ranked.complain(
               fmt::format("{}; where another rank waited for it, what that one did last is in {}", text, call_log_path(run, "*")));
         }}));
  }
  collectives::local::run_threads(ranks, [&](collectives::Transport& transport) { noting_losses(transport, run, body); }, limits_of(run));
}

bool is_first_process() {
  if (collectives::local::is_supervised()) return false;
  const std::int64_t rank = own_number();
  return rank <= 0 || rank >= ranks_started();
}

bool speaks_for_all(base::ErrorKind kind) {
  if (is_first_process()) return true;
  if (collectives::local::is_supervised()) return false;  // the supervisor says which rank failed first, and of what
  if (kind == base::ErrorKind::peer_lost) return true;    // it may have been the first rank that was lost
  // A launcher ends all ranks when one has ended (mpirun after a second): whoever is still here later was the first to fail. Ranks wait by
  // turns; beyond a few, two may speak.
  constexpr std::int64_t kTurns = 6;
  std::this_thread::sleep_for(kToBeEnded * std::min(own_number(), kTurns));
  return true;
}

void tell_ranks_that_wait(const std::string& message) {
  if (has_met || std::getenv("MASTER_PORT") == nullptr || collectives::local::is_supervised() || collectives::mpi::launched_by()) return;
  try {
    // Which device would have been this rank's does not matter any more, and may be what is wrong.
    auto launch = collectives::launch_from(
        [](const char* name) -> const char* { return std::string_view(name) == "LOCAL_RANK" ? nullptr : std::getenv(name); });
    if (!launch || launch->ranks < 2) return;
    launch->build = build_words();
    collectives::tell_of_early_loss(*launch, fmt::format("failed before it met the others: {}", message), kToTell);
  } catch (const base::Error&) {
    // Wrong variables, or a port in use: there is nobody to tell.
  }
}

std::string own_name() {
  if (is_first_process()) return "";
  return fmt::format("rank {}: ", own_number());
}

std::string words_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) == nullptr) return error.what();
  return "the system refused memory beside the arenas; close other programs or use a smaller batch";
}

}  // namespace plimsoll::train
