#include "cli/common.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/say.h"
#include "config/config.h"
#include "formats/hf_config.h"
#include "io/files.h"
#include "observe/terminal.h"
#include "report/waterline_text.h"
#include "strategy/legality.h"
#include "train/ranks.h"
#include "train/setup/text.h"

namespace plimsoll::cli {

namespace {

constexpr std::int64_t kLargestRunFile = std::int64_t{16} << 20;

constexpr std::string_view kDash = "-";

// What was read stays there to be read again: ranks that are processes each begin with this command line.
void put_back(const std::string& text) {
  const int file = ::memfd_create("run", 0);
  if (file < 0) return;
  const bool whole = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (whole) ::dup2(file, STDIN_FILENO);
  ::close(file);
}

std::string standard_input(io::FileSystem& file_system) {
  if (train::ranks_started() > 1) {
    base::bad_input("the run is to be read from the standard input, which under {} only the first rank has; give it as a file",
                    train::launcher_name());
  }
  std::string text = io::read_text(file_system, "/dev/stdin", kLargestRunFile);
  put_back(text);
  return text;
}

std::string run_text(io::FileSystem& file_system, const std::string& path, std::string_view expected) {
  try {
    return path == kDash ? standard_input(file_system) : io::read_text(file_system, path, kLargestRunFile);
  } catch (const base::Error& error) {
    base::fail(error.kind(), "{}; expected {}", error.what(), expected);
  }
}

[[noreturn]] void refuse_ranks(const config::Run& run, std::int64_t ranks) {
  const std::int64_t wanted = run.strategy.ranks();
  const bool started = train::ranks_started() > 0;  // by a launcher: their number is its to choose
  base::not_legal(
      "{}: found a strategy of {} rank{} ({}) and {}; {}, or give a \"strategy\" of {} ranks", run.where("strategy.data"), wanted,
      wanted == 1 ? "" : "s", strategy::mesh_text(run.strategy),
      started ? fmt::format("{} that {} started", ranks, train::launcher_name()) : fmt::format("--ranks {}", ranks),
      started ? fmt::format("start {} ({} -n {})", wanted, train::launcher_name(), wanted) : fmt::format("give --ranks {}", wanted), ranks);
}

// The override that makes the strategy one of `ranks` ranks, where it leaves the data axis open.
std::string data_ranks_for(const config::Run& run, std::int64_t ranks) {
  const std::int64_t others = run.strategy.tensor * run.strategy.pipe * run.strategy.more_ranks();
  if (run.given("strategy.data") || run.strategy.own_degrees() || ranks % others != 0) refuse_ranks(run, ranks);
  return fmt::format("strategy.data={}", ranks / others);
}

}  // namespace

namespace {

// What a folder that may have been moved knows better than the paths in its run.json.
void prefer_kept(io::FileSystem& file_system, const io::Path& kept, config::Run& run) {
  const bool asked_for = run.origin("data.tokenizer").kind == config::OriginKind::set;
  if (kept.empty() || asked_for || run.data.tokenizer == "bytes" || !file_system.status(kept)) return;
  if (const auto file = formats::tokenizer::tokenizer_file(file_system, kept.string())) {
    run.data.tokenizer = file->string();
    run.origins["data.tokenizer"] = {.kind = config::OriginKind::file, .text = kept.string()};
  }
}

// How many ranks were asked for; 0: nobody said.
std::int64_t ranks_wanted(const RunOptions& options) {
  const std::int64_t started = train::ranks_started();
  if (started > 0 && options.ranks > 0 && options.ranks != started) {
    base::not_legal("{} started {} rank{}, but --ranks is {}; leave --ranks out: the launcher says how many there are",
                    train::launcher_name(), started, started == 1 ? "" : "s", options.ranks);
  }
  return options.ranks > 0 ? options.ranks : started;
}

// Ranks of a strategy that is still open are whoever's business decides it.
bool leaves_ranks_over(const config::Run& run, std::int64_t ranks) {
  return ranks > 0 && !run.strategy_auto && ranks != run.strategy.ranks();
}

// Where nothing is trained, how the samples were shared out in training binds nobody, nor need they divide.
void share_samples_among(config::Run& run, std::int64_t ranks) {
  if (!leaves_ranks_over(run, ranks)) return;
  const std::int64_t others = run.strategy.tensor * run.strategy.pipe * run.strategy.more_ranks();
  const bool asked_for = run.origin("strategy.data").kind == config::OriginKind::set;
  if (asked_for || run.strategy.own_degrees() || ranks % others != 0) refuse_ranks(run, ranks);
  run.strategy.data = ranks / others;
}

enum class For : std::uint8_t { training, stored_weights };

config::Run read_run(io::FileSystem& file_system, const RunOptions& options, const io::Path& kept, For use) {
  config::NamedText deepspeed{.name = options.deepspeed, .text = ""};
  if (!deepspeed.name.empty()) deepspeed.text = run_text(file_system, deepspeed.name, "a DeepSpeed configuration (see docs/deepspeed.md)");
  const std::string text = run_text(file_system, options.file, "a run file (see docs/run-file.md)");
  const std::string name = options.file == kDash ? std::string(config::kStandardInput) : options.file;
  config::Run run = config::parse_run(text, name, options.overrides, deepspeed);
  const std::int64_t ranks = ranks_wanted(options);
  if (use == For::training && leaves_ranks_over(run, ranks)) {
    std::vector<std::string> overrides = options.overrides;
    overrides.push_back(data_ranks_for(run, ranks));
    run = config::parse_run(text, name, overrides, deepspeed);
  }
  if (const std::string warning = config::deepspeed_warning(run); !warning.empty() && train::is_first_process())
    say("plimsoll: {}", warning);
  if (!run.model_path.empty()) {
    const bool has_config = !kept.empty() && file_system.status(kept / "config.json");
    config::resolve_model(run, formats::read_hf_config(file_system, has_config ? kept : io::Path(run.model_path)));
  }
  prefer_kept(file_system, kept, run);
  train::resolve_tokenizer(file_system, run);
  return run;
}

}  // namespace

config::Run read_run(io::FileSystem& file_system, const RunOptions& options) { return read_run(file_system, options, {}, For::training); }

Source read_source(io::FileSystem& file_system, const RunOptions& options) {
  const train::ModelPlace place =
      options.file == kDash ? train::ModelPlace{.run_file = options.file} : train::find_model(file_system, options.file);
  if (place.model_folder.empty()) {
    RunOptions of_file = options;
    of_file.file = place.run_file.string();
    const bool in_folder = !place.checkpoints.empty() || !place.checkpoint.empty();
    const io::Path beside = in_folder ? train::kept_folder(place.run_file.parent_path()) : io::Path();
    config::Run run = read_run(file_system, of_file, beside, For::stored_weights);
    share_samples_among(run, ranks_wanted(options));
    return {place, run, in_folder ? beside : train::kept_folder(run.out)};
  }
  const base::Json settings = base::Json::object({{"model", base::Json::object({{"path", place.model_folder.string()}})}});
  config::Run run = config::parse_run(base::write_json(settings), options.file, options.overrides);
  config::resolve_model(run, formats::read_hf_config(file_system, place.model_folder));
  train::resolve_tokenizer(file_system, run);
  share_samples_among(run, ranks_wanted(options));
  return {place, std::move(run), {}};
}

void say_notes(const config::Run& run) {
  if (!train::is_first_process()) return;
  for (const std::string& note : run.notes) say("plimsoll: note: {}\n", note);
}

std::vector<std::string> command_of_ranks(bool processes) {
  if (!processes) return {};
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  if (arguments.empty())
    base::fail(base::ErrorKind::other, "/proc/self/cmdline could not be read; run the ranks as threads, without --processes");
  arguments[0] = "/proc/self/exe";
  return arguments;
}

void complain_of_ranks(const std::string& text) { say("plimsoll: {}\n", text); }

bool speaks(const collectives::Transport* transport) { return transport == nullptr || transport->rank() == 0; }

void show_waterline(const plan::Plan& plan, std::string_view program, const train::Capacity& capacity) {
  show("{}\n", report::waterline_text(plan, program,
                                      {.color = observe::detect_terminal(1).color,
                                       .width = 72,
                                       .capacity = capacity.device,
                                       .reserve = capacity.reserve,
                                       .host_reserve = capacity.host_reserve}));
}

void say_passed_over(const std::vector<std::string>& problems) {
  for (const std::string& problem : problems) say("passed over: {}\n", problem);
}

void say_absent(const std::string& folder, const std::vector<std::string>& parameters) {
  for (const std::string& name : parameters) say("{} has no {}; it starts from random values\n", folder, name);
}

}  // namespace plimsoll::cli
