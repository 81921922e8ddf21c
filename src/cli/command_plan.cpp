#include <map>

#include <fmt/format.h>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/plan_questions.h"
#include "cli/plan_schedule.h"
#include "cli/plan_search.h"
#include "graph/text.h"
#include "io/files.h"
#include "io/posix_file_system.h"
#include "lowering/pass_table.h"
#include "observe/terminal.h"
#include "plan/file.h"
#include "plan/print.h"
#include "plan/verify.h"
#include "plan/waterline.h"
#include "report/page.h"
#include "report/waterline_text.h"
#include "train/setup/setup.h"

namespace plimsoll::cli {

namespace {

using base::Json;

// The fullest class first, then the others: what each has in a tier differs.
Json peaks_json(const plan::Plan& plan) {
  Json peaks = Json::object();
  const auto add = [&](const plan::RankClass& rank_class) {
    Json tiers = Json::object();
    for (const plan::Tier tier : {plan::Tier::device, plan::Tier::host, plan::Tier::disk}) {
      const base::Bytes bytes = rank_class.arena[static_cast<std::size_t>(tier)];
      if (tier == plan::Tier::device || bytes.count > 0) tiers.set(plan::name_of(tier), Json(bytes.count));
    }
    peaks.set(rank_class.name, std::move(tiers));
  };
  const plan::RankClass& fullest = plan::fullest_class(plan);
  add(fullest);
  for (const plan::RankClass& rank_class : plan.classes) {
    if (&rank_class != &fullest) add(rank_class);
  }
  return peaks;
}

Json candidate_json(const plan::Plan& plan, const train::Capacity& capacity) {
  const plan::RankClass& rank_class = plan::fullest_class(plan);
  const base::Bytes arena = rank_class.arena[static_cast<std::size_t>(plan::Tier::device)];
  const plan::Waterline line = plan::waterline(rank_class, 0, plan::Tier::device);
  const std::optional<std::string> why = train::why_too_large(plan, capacity);
  const bool device_fits = arena + capacity.reserve <= capacity.device;
  Json kinds = Json::object();
  for (const auto& [kind, bytes] : plan::by_kind(rank_class, 0, plan::Tier::device, line.peak_call))
    kinds.set(plan::name_of(kind), Json(bytes.count));
  return Json::object({{"fits", !why},
                       {"reason", !why          ? Json()
                                  : device_fits ? Json(*why)
                                                : Json(fmt::format("needs {} of {}", base::to_string(arena + capacity.reserve),
                                                                   base::to_string(capacity.device)))},
                       {"strategy", plan.strategy},
                       {"peak_bytes", peaks_json(plan)},
                       {"reserve_bytes", capacity.reserve.count},
                       {"host_reserve_bytes", capacity.host_reserve.count},
                       {"device_bytes_by_kind", kinds}});
}

void write_page(io::FileSystem& file_system, const std::string& path, const plan::Plan& plan, const train::Capacity& capacity) {
  const base::Bytes arena = plan::fullest_class(plan).arena[static_cast<std::size_t>(plan::Tier::device)];
  const base::Bytes needed = (capacity.per_rank ? arena : arena * plan.mesh.ranks()) + capacity.reserve;
  const std::string verdict = needed > capacity.device ? fmt::format("no, {} too much", base::to_string(needed - capacity.device))
                              : train::why_too_large(plan, capacity) ? "no, a slower tier is too small"
                                                                     : "yes";
  const report::Page page{.plan = plan,
                          .capacity = capacity.per_rank ? capacity.device : base::Bytes{capacity.device.count / plan.mesh.ranks()},
                          .reserve = capacity.reserve,
                          .times = {},
                          .figures = {{"fits", verdict},
                                      {"ranks", fmt::format("{}", plan.mesh.ranks())},
                                      {"arena of the fullest rank", base::to_string(arena)},
                                      {"memory there is", base::to_string(capacity.device)}},
                          .tables = {}};
  io::replace_file(file_system, path, io::as_bytes(report::page_html(page)));
}

// Passes that had something to do for the first rank, and the graphs that they left.
using PassesDone = std::map<std::string, std::string, std::less<>>;

// Every pass in order, with those marked; with `graphs` also what each of them left.
void print_passes(const PassesDone& done, const PlanOptions& options) {
  const std::vector<lowering::PassLine> all = lowering::all_passes();
  if (options.run.json) {
    Json::Array passes;
    for (const lowering::PassLine& pass : all) {
      const auto ran = done.find(pass.name);
      Json row = Json::object({{"name", std::string(pass.name)}, {"does", std::string(pass.does)}, {"ran", ran != done.end()}});
      if (options.full && ran != done.end()) row.set("graph", ran->second);
      passes.push_back(std::move(row));
    }
    fmt::print("{}\n", base::write_json(Json::object({{"passes", Json(std::move(passes))}}), base::JsonLayout::pretty));
    return;
  }
  fmt::print("Passes from the model's forward pass to the graph of a rank, in order; those marked * have something to do in this run.\n\n");
  for (const lowering::PassLine& pass : all) fmt::print("{} {:<22} {}\n", done.contains(pass.name) ? '*' : ' ', pass.name, pass.does);
  for (const lowering::PassLine& pass : all) {
    const auto ran = done.find(pass.name);
    if (options.full && ran != done.end()) fmt::print("\n==== after {}\n\n{}", pass.name, ran->second);
  }
}

}  // namespace

void plan_command(const PlanOptions& options) {
  io::PosixFileSystem file_system;
  RunOptions run_options = options.run;
  if (!options.cluster.empty()) run_options.ranks = 0;  // how they are divided is what is asked
  const config::Run run = read_run(file_system, run_options);
  require_answers(options, run);
  if (!options.schedules.empty()) return plan_schedules(file_system, run, options);
  if (!options.cluster.empty() || run.strategy_auto) return plan_search(file_system, run, options);
  const base::Bytes data = train::data_to_come(file_system, run);
  train::SessionOptions session = train::session_options(
      run, {.train = true, .evaluate = !run.data.valid.empty(), .schedule = train::schedule_of(file_system, run), .data_to_come = data});
  PassesDone done;
  if (options.passes) {
    session.pass_done = [&](std::string_view pass, const graph::Graph& graph) {
      done[std::string(pass)] = options.full ? graph::to_string(graph) : "";
    };
  }
  const train::Capacity capacity = train::capacity_of(run, data);  // before the plan is made, as training does
  const plan::Plan plan = train::plan_within(session, run);
  plan::verify(plan, "lowering");
  if (options.passes) return print_passes(done, options);
  if (!options.out.empty()) {
    io::replace_file(file_system, options.out, io::as_bytes(plan::to_text(plan) + "\n"));
  }
  if (!options.html.empty()) write_page(file_system, options.html, plan, capacity);
  if (options.run.json) {
    Json::Array candidates{candidate_json(plan, capacity)};
    fmt::print("{}\n", base::write_json(Json::object({{"candidates", Json(std::move(candidates))}}), base::JsonLayout::pretty));
    return;
  }
  if (options.full) {
    fmt::print("{}", plan::to_string(plan));
    return;
  }
  const observe::Terminal terminal = observe::detect_terminal(1);
  if (!run.deepspeed.equation.empty()) fmt::print("{}\n\n", run.deepspeed.equation);
  fmt::print("{}", report::waterline_text(plan, train::kTrain,
                                          {.color = terminal.color,
                                           .width = 72,
                                           .capacity = capacity.device,
                                           .reserve = capacity.reserve,
                                           .host_reserve = capacity.host_reserve}));
  train::require_fit(plan, capacity, session);
}

}  // namespace plimsoll::cli
