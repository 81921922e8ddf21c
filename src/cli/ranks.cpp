#include "cli/ranks.h"

#include <link.h>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "base/json.h"
#include "collectives/agree.h"
#include "collectives/local/processes.h"
#include "collectives/local/threads.h"
#include "collectives/mpi/mpi.h"
#include "config/config.h"
#include "strategy/legality.h"

namespace plimsoll::cli {

namespace {

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

// This process's own command line, to be run once more by every rank.
std::vector<std::string> own_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  if (arguments.empty())
    base::fail(base::ErrorKind::other, "/proc/self/cmdline could not be read; run the ranks as threads, without --processes");
  arguments[0] = "/proc/self/exe";
  return arguments;
}

void require_size(const collectives::Transport& transport, const config::Run& run) {
  const std::int64_t wanted = run.strategy_auto ? 1 : run.strategy.ranks();
  if (transport.size() == wanted) return;
  base::not_legal("found {} ranks ({}) for a strategy of data {} x tensor {} x pipe {} = {} ranks; start {}, or change the strategy",
                  transport.size(), transport.description(), run.strategy.data, run.strategy.tensor, run.strategy.pipe, wanted, wanted);
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

// Files and programs may differ from machine to machine; a run that mixes them must not start.
void agree_on_run(collectives::Transport& transport, const config::Run& run) {
  const std::unique_ptr<collectives::Group> everybody = transport.make_world("handshake");
  collectives::agree(*everybody, {{"build", PLIMSOLL_VERSION " " + build_id()},
                                  {"run", base::write_json(config::to_json(run))},
                                  {"OMP_NUM_THREADS", std::getenv("OMP_NUM_THREADS") == nullptr ? "" : std::getenv("OMP_NUM_THREADS")}});
}

void as_rank(collectives::Transport& transport, const config::Run& run, const std::function<void(collectives::Transport*)>& body) {
  require_size(transport, run);
  agree_on_run(transport, run);
  body(&transport);
}

// A rank in a process of its own: what goes wrong here must reach the others before this process ends.
void as_process(std::unique_ptr<collectives::Transport> transport, const config::Run& run,
                const std::function<void(collectives::Transport*)>& body) {
  try {
    as_rank(*transport, run, body);
  } catch (const std::exception& error) {
    transport->abort(error.what());
    throw;
  }
}

}  // namespace

std::int64_t ranks_started() { return first_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}).value_or(0); }

void run_ranks(const config::Run& run, bool processes, const std::function<void(collectives::Transport*)>& body) {
  if (!run.strategy_auto) strategy::require_legal(run.strategy);  // before anything starts
  if (collectives::local::is_supervised()) return as_process(collectives::local::join_processes(), run, body);
  if (collectives::mpi::launched_by()) {
    if (run.transport == config::Transport::local)
      base::bad_input("{}: \"transport\" is \"local\", but {} says that a launcher of MPI programs started this; use \"auto\" or \"mpi\"",
                      run.where("transport"), *collectives::mpi::launched_by());
    return as_process(collectives::mpi::join(), run, body);
  }
  if (run.transport == config::Transport::mpi)
    base::bad_input("{}: \"transport\" is \"mpi\", but no launcher of MPI programs started this; use mpirun -n {} plimsoll ...",
                    run.where("transport"), run.strategy.ranks());
  const auto ranks = static_cast<int>(run.strategy_auto ? 1 : run.strategy.ranks());
  if (ranks == 1) return body(nullptr);
  if (processes) {
    std::exit(collectives::local::supervise(
        {.ranks = ranks, .command = own_command(), .say = [](const std::string& text) { fmt::print(stderr, "plimsoll: {}\n", text); }}));
  }
  collectives::local::run_threads(ranks, [&](collectives::Transport& transport) { body(&transport); });
}

bool speaks_for_all(base::ErrorKind kind) {
  if (collectives::local::is_supervised()) return false;  // the supervisor says which rank failed first, and of what
  if (first_number({"OMPI_COMM_WORLD_RANK", "PMI_RANK"}).value_or(0) == 0) return true;
  if (kind == base::ErrorKind::peer_lost) return true;  // it may have been the first rank that was lost
  // A launcher ends all ranks when one has ended: leave the first one time to speak.
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  return false;
}

}  // namespace plimsoll::cli
