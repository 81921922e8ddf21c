#include "train/session/session.h"

#include <malloc.h>

#include <chrono>
#include <map>

#include "base/cores.h"
#include "executor/cpu/cpu_backend.h"
#include "graph/models/models.h"
#include "io/posix_file_system.h"
#include "lowering/lower.h"
#include "lowering/outline.h"
#include "lowering/passes/carry_update.h"
#include "lowering/rows.h"
#include "plan/programs.h"
#include "plan/verify.h"
#include "strategy/legality.h"
#include "train/session/initialise.h"
#include "train/session/number_rows.h"
#include "train/session/programs.h"

namespace plimsoll::train {

namespace {

// Ranks of one machine share its cores.
int thread_count(const SessionOptions& options) {
  if (options.threads > 0) return options.threads;
  return std::max(1, base::usable_cores() / static_cast<int>(options.strategy.ranks()));
}

const executor::Backend& backend_in(const SessionOptions& options) {
  return options.backend != nullptr ? *options.backend : executor::cpu_backend();
}

ops::ChooseKernel chooser_of(const SessionOptions& options) {
  return [&backend = backend_in(options), deterministic = options.deterministic](const ops::KernelQuery& query) {
    ops::KernelQuery asked = query;
    asked.deterministic = deterministic;
    return asked.tier == ops::Tier::host ? executor::cpu_backend().choose(asked) : backend.choose(asked);
  };
}

// What a step can send to the host's memory while it computes, in bytes for each floating-point operation: about what a core copies
// in memory, and what a GPU of today has over its link.
double link_of(const executor::Backend& backend) { return backend.name() == executor::cpu_backend().name() ? 0.1 : 1e-4; }

lowering::LoweringInputs lowering_inputs(const SessionOptions& options, const std::vector<ProgramSource>& sources) {
  lowering::LoweringInputs inputs{.model = options.name,
                                  .programs = {},
                                  .strategy = options.strategy,
                                  .schedule = options.schedule,
                                  .choose = chooser_of(options),
                                  .threads = thread_count(options),
                                  .link = options.link > 0.0 ? options.link : link_of(backend_in(options)),
                                  .host_beside = backend_in(options).name() != executor::cpu_backend().name(),
                                  .device_limit = options.device_limit,
                                  .host_limit = options.host_limit,
                                  .role_of = options.role_of,
                                  .pass_done = options.pass_done};
  for (const ProgramSource& source : sources)
    inputs.programs.push_back({.name = source.name,
                               .graph = source.graph,
                               .micro_batches = source.micro_batches,
                               .cadence = source.cadence,
                               .role = source.role});
  return inputs;
}

plan::Plan lower_sources(const SessionOptions& options, const std::vector<ProgramSource>& sources) {
  plan::Plan plan = lowering::lower(lowering_inputs(options, sources));
  // The order of a user's file is not ours: what it cannot do with this model and strategy is told, not computed wrongly.
  if (options.schedule) {
    const std::vector<std::string> problems = plan::problems(plan);
    if (!problems.empty()) {
      base::not_legal("the schedule \"{}\" cannot be run with this model and strategy: {}; use a schedule by name", options.schedule->name,
                      problems.front());
    }
  }
  return plan;
}

// What follows from the strategy for the graph.
SessionOptions settle(SessionOptions options) {
  if (options.strategy.widest_tensor() > 1) options.training.fused_head = false;
  // An update that is made elsewhere than where the weights are needs what it updates beside it.
  const strategy::Offload& offload = options.strategy.offload;
  if (offload.optimizer.anything() && offload.optimizer != offload.params) options.training.masters = true;
  options.training.delayed = options.strategy.delayed_update;
  return options;
}

// Ranks that measured their machines by themselves must still make the same plan: what the first rank found holds for all.
void agree_on_limits(SessionOptions& options) {
  const std::unique_ptr<collectives::Group> world = options.transport->make_world("limit");
  world->broadcast(std::as_writable_bytes(std::span(&options.device_limit.count, 1)), base::DType::u8, 0);
  world->broadcast(std::as_writable_bytes(std::span(&options.host_limit.count, 1)), base::DType::u8, 0);
  world->broadcast(std::as_writable_bytes(std::span(&options.link, 1)), base::DType::u8, 0);
}

// Before anything is planned or allocated.
SessionOptions checked(SessionOptions options) {
  const std::int64_t ranks = options.transport == nullptr ? 1 : options.transport->size();
  if (options.strategy.ranks() != ranks) {
    plan_session(options);  // what cannot be run by any ranks is told first
    base::not_legal("the strategy has {} ranks ({}), but {} started; start {}, or change the strategy", options.strategy.ranks(),
                    strategy::describe(options.strategy), ranks == 1 ? "one was" : fmt::format("{} were", ranks), options.strategy.ranks());
  }
  const bool fitted = options.strategy.recompute == strategy::Recompute::optimal || options.strategy.offload.optimizer.anything();
  if (fitted && ranks > 1) agree_on_limits(options);
  return settle(std::move(options));
}

}  // namespace

PreparedSession prepare_session(SessionOptions options) {
  PreparedSession prepared{.options = checked(std::move(options)), .programs = {}, .plan = {}};
  prepared.programs = programs_of(prepared.options);
  prepared.plan = lower_sources(prepared.options, prepared.programs);
  plan::verify(prepared.plan, "lowering");  // a small part of what making it takes
  // Making a plan may take more than the plan, and what was freed of it would lie beside the arena for ever.
  malloc_trim(0);
  return prepared;
}

struct Session::State {
  explicit State(PreparedSession prepared)
      : options(std::move(prepared.options)),
        sources(std::move(prepared.programs)),
        plan(std::move(prepared.plan)),
        rank(options.transport == nullptr ? 0 : options.transport->rank()),
        executor(backend_in(options).make_executor(plan, {.rank = rank,
                                                          .transport = options.transport,
                                                          .file_system = options.file_system != nullptr ? options.file_system : &files,
                                                          .disk_folder = options.disk_folder,
                                                          .shared = options.shared})),
        buffers(*executor) {
    if (plan.mesh.ranks() > 1) world = options.transport->make_world("world");
    const auto group = [&](const std::vector<std::int32_t>& ranks, std::string_view name) {
      return ranks.size() == 1 ? nullptr : options.transport->make_group(ranks, fmt::format("{}, between steps", name));
    };
    tensor_group = group(plan.mesh.group(ops::Axis::tensor, rank), "tensor");
    data_group = group(plan.mesh.sharing(ops::Shares::batch, rank), "data");
    const std::vector<std::int32_t> shards = plan.mesh.group(plan.mesh.shard_axis(), rank);
    shares_alone = data_group != nullptr && std::ssize(shards) != data_group->size();
    if (shares_alone) shard_group = group(shards, "shards");
    for (auto source = sources.rbegin(); source != sources.rend(); ++source) {
      const bool draws = options.draw_parameters && &*source == &sources.front();
      initialise(source->graph, *executor, {.seed = options.seed, .parameters = draws});
    }
    if (options.train && options.training.precision == model::Precision::fp16) {
      auto& scalars = *reinterpret_cast<ops::StepScalars*>(buffers.bytes("scalars"));
      scalars.loss_scale = static_cast<float>(options.training.loss_scaling.initial);
      scalars.hysteresis = static_cast<std::int32_t>(options.training.loss_scaling.hysteresis - 1);
    }
    carries = plan::find_program(executor->rank_class(), lowering::kFlush) != nullptr;
    for (const plan::RankClass& rank_class : plan.classes) {
      for (const plan::Program& program : rank_class.programs) {
        if (!around.contains(program.name)) around.emplace(program.name, plan::around(plan, program.name));
      }
    }
    settled();
  }

  // All ranks have the same scalars, so all of them refuse the same step. Nothing was updated in it.
  void require_room(const ops::StepScalars& after) const {
    if (after.rows_wanted == 0) return;
    std::int64_t bound = 0;
    for (const graph::Value& value : sources.front().graph.values) bound = std::max(bound, value.live.bound);
    base::bad_input("a micro-batch has {} rows, but there is room for {}: use smaller batches, or a larger bound", after.rows_wanted,
                    bound);
  }

  // A program whose inputs have been filled, with those that work for it. Ranks whose role does not have it still do what others need.
  void run(const std::string& name, executor::Timeline* timeline = nullptr) {
    const auto found = around.find(name);
    PLIMSOLL_CHECK(found != around.end(), "the plan has no program {}", name);
    for (const std::string& ahead : found->second.ahead) {
      if (prepare(ahead, name)) run_around(ahead, true, timeline);
    }
    if (has(name)) executor->run(name, timeline);
    for (const std::string& behind : found->second.behind) run_around(behind, false, timeline);
  }

  // What the host does before a program that works for another; false where there is nothing left for it to do.
  bool prepare(std::string_view program, std::string_view needed_by) {
    if (program == lowering::kFlush) {
      settle();
      return false;
    }
    if (program == lowering::kFetchRows) return number_rows_of(needed_by);
    return true;
  }

  // Where the token table is on disk: the rows of it that a program will read.
  bool number_rows_of(std::string_view program) {
    const std::string ids(lowering::kRowIds);
    if (!buffers.has(ids)) return false;
    std::vector<std::span<std::int32_t>> tokens;
    const plan::Program* needing = plan::find_program(executor->rank_class(), program);
    const std::int32_t micro_batches = needing == nullptr ? 0 : needing->micro_batches;
    for (std::int32_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      const std::string name = program_buffer(program, lowering::kTokens, micro_batch);
      if (buffers.has(name)) tokens.push_back(buffers.view<std::int32_t>(name, plan::Access::write));
    }
    number_rows(tokens, buffers.view<std::int32_t>(ids, plan::Access::write), data_group.get());
    return true;
  }

  bool has(std::string_view program) const { return plan::find_program(executor->rank_class(), program) != nullptr; }

  // Makes the update that waits.
  void settle() {
    if (!update_waits) return;
    executor->run(lowering::kFlush);
    settled();
  }

  // Those of all roles, in the order of the sources: what works for one of them may need every rank.
  void run_due(plan::Cadence::When when, std::span<const StepInputs> steps, executor::Timeline* timeline) {
    for (const ProgramSource& source : sources) {
      const bool due =
          std::any_of(steps.begin(), steps.end(), [&](const StepInputs& step) { return plan::is_due(source.cadence, when, step.step); });
      if (!due) continue;
      const auto start = std::chrono::steady_clock::now();
      run(source.name);
      note(source.name, when == plan::Cadence::When::before, start, timeline);
    }
  }

  void run_around(const std::string& program, bool before, executor::Timeline* timeline) {
    if (!has(program)) return;
    const auto start = std::chrono::steady_clock::now();
    executor->run(program);
    note(program, before, start, timeline);
  }

  static void note(const std::string& program, bool before, std::chrono::steady_clock::time_point start, executor::Timeline* timeline) {
    if (timeline == nullptr) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    timeline->around.push_back({.program = program, .before = before, .seconds = seconds});
  }

  // No update waits.
  void settled() {
    update_waits = false;
    const std::string name(lowering::kPendingScalars);
    if (carries && buffers.has(name)) reinterpret_cast<ops::StepScalars*>(buffers.bytes(name))->skip = 1;
  }

  io::PosixFileSystem files;
  SessionOptions options;
  std::vector<ProgramSource> sources;
  plan::Plan plan;
  std::int32_t rank;
  std::unique_ptr<collectives::Group> world;
  std::unique_ptr<collectives::Group> data_group;
  std::unique_ptr<collectives::Group> shard_group;  // where those are not all that share out the batch
  bool shares_alone = false;
  std::unique_ptr<collectives::Group> tensor_group;
  std::unique_ptr<executor::Executor> executor;
  Buffers buffers;
  std::map<std::string, plan::Around, std::less<>> around;  // by program: what works for it
  bool carries = false;                                     // steps leave their update to the next
  bool update_waits = false;                                // one has
};

graph::WriteForward forward_of(const model::Model& model) {
  return [model](graph::Builder& build) { graph::build_forward(model, build); };
}

plan::Plan plan_session(const SessionOptions& options) {
  const SessionOptions settled = settle(options);
  return lower_sources(settled, programs_of(settled));
}

plan::Plan outline_session(const SessionOptions& options) {
  const SessionOptions settled = settle(options);
  const std::vector<ProgramSource> sources = programs_of(settled);
  return lowering::outline(lowering_inputs(settled, sources));
}

Session::Session(PreparedSession prepared) : state_(std::make_unique<State>(std::move(prepared))) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;

const plan::Plan& Session::plan() const { return state_->plan; }
const graph::Graph& Session::graph() const { return state_->sources.front().graph; }
std::uint64_t Session::seed() const { return state_->options.seed; }
const std::optional<Decoding>& Session::decoding() const { return state_->options.decode; }
std::int32_t Session::rank() const { return state_->rank; }
collectives::Group* Session::world() { return state_->world.get(); }
collectives::Group* Session::data_group() { return state_->data_group.get(); }
collectives::Group* Session::shard_group() { return state_->shares_alone ? state_->shard_group.get() : data_group(); }
collectives::Group* Session::tensor_group() { return state_->tensor_group.get(); }
void Session::refresh_weights() { refresh_copies(graph(), executor(), shard_group()); }
executor::Executor& Session::executor() { return *state_->executor; }
const Buffers& Session::buffers() const { return state_->buffers; }

std::span<std::int32_t> Session::input(std::string_view program, std::string_view value, std::int32_t micro_batch) {
  const std::string name = program_buffer(program, value, micro_batch);
  if (!state_->buffers.has(name)) return {};
  return state_->buffers.view<std::int32_t>(name, plan::Access::write);
}

namespace {

std::string scalars_name(std::size_t step) { return step == 0 ? "scalars" : fmt::format("scalars@{}", step); }

}  // namespace

ops::StepScalars& Session::scalars(std::size_t step) {
  return *reinterpret_cast<ops::StepScalars*>(state_->buffers.bytes(scalars_name(step)));
}

const ops::StepScalars& Session::scalars_now(std::size_t step) const {
  return *reinterpret_cast<const ops::StepScalars*>(state_->buffers.bytes(scalars_name(step), plan::Access::read));
}

StepResult Session::step(const StepInputs& inputs, executor::Timeline* timeline) { return steps({&inputs, 1}, timeline).front(); }

std::vector<StepResult> Session::steps(std::span<const StepInputs> inputs, executor::Timeline* timeline) {
  PLIMSOLL_CHECK(inputs.size() == static_cast<std::size_t>(state_->options.strategy.flush_every), "{} steps in a program of {}",
                 inputs.size(), state_->options.strategy.flush_every);
  using When = plan::Cadence::When;
  state_->run_due(When::before, inputs, timeline);
  const ops::StepScalars start = scalars();
  for (std::size_t step = 0; step < inputs.size(); ++step) {
    ops::StepScalars& numbers = scalars(step);
    numbers = start;
    numbers.seed = state_->options.seed;
    numbers.step = inputs[step].step;
    numbers.learning_rate = inputs[step].learning_rate;
    numbers.inverse_tokens = static_cast<float>(1.0 / static_cast<double>(std::max<std::int64_t>(1, inputs[step].valid_targets)));
    // Where there are several, none is skipped: nothing then waits for a verdict.
    numbers.updates = start.updates + static_cast<std::int64_t>(step);
  }
  state_->run(std::string(kTrain), timeline);
  state_->update_waits = state_->carries;
  std::vector<StepResult> results;
  for (std::size_t step = 0; step < inputs.size(); ++step) {
    const ops::StepScalars& after = scalars_now(step);
    state_->require_room(after);
    results.push_back({.loss = after.loss.value() / static_cast<double>(std::max<std::int64_t>(1, inputs[step].valid_targets)),
                       .gradient_norm = after.gradient_norm,
                       .loss_scale = start.loss_scale,
                       .skipped = after.skip != 0});
  }
  if (inputs.size() > 1) scalars() = scalars_now(inputs.size() - 1);
  state_->run_due(When::after, inputs, timeline);
  return results;
}

void Session::settle() { state_->settle(); }

bool Session::carries_updates() const { return state_->carries; }
bool Session::update_waits() const { return state_->update_waits; }

double Session::evaluate() {
  settle();
  const ops::StepScalars before = scalars();
  run(kEvaluate);
  const double loss = scalars_now().loss.value();
  const ops::StepScalars after = scalars_now();
  scalars() = before;
  state_->require_room(after);
  return loss;
}

void Session::infer() { run(kInfer); }
void Session::prefill() { run(kPrefill); }
void Session::decode() { run(kDecode); }

void Session::run(std::string_view program) { state_->run(std::string(program)); }

}  // namespace plimsoll::train
