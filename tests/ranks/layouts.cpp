#include "ranks/layouts.h"

#include <mutex>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collectives/local/threads.h"
#include "lowering/fit.h"
#include "plan/verify.h"
#include "support/small_model.h"
#include "train/stored/weights.h"

namespace plimsoll::ranks {

namespace {

// Passes everything on, and keeps the groups in sight, so that what they sent can be read.
class Counting final : public collectives::Transport {
 public:
  explicit Counting(collectives::Transport& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string description() const override { return inner_.description(); }
  void abort(const std::string& reason, base::ErrorKind kind) override { inner_.abort(reason, kind); }
  std::unique_ptr<collectives::Group> make_group(std::span<const int> ranks, std::string name) override {
    std::unique_ptr<collectives::Group> group = inner_.make_group(ranks, name);
    groups_[name] = group.get();
    return group;
  }
  // By the groups of programs: an axis each, or a link of the pipeline. Others serve between steps, or for a moment.
  std::int64_t sent() const {
    std::int64_t bytes = 0;
    for (const auto& [name, group] : groups_) {
      const bool axis = ops::Axis::named(name) && name != "world" && name != "limit";
      if (axis || (name.starts_with("pipe ") && name.find(" to ") != std::string::npos)) bytes += group->traffic().sent;
    }
    return bytes;
  }

 private:
  collectives::Transport& inner_;
  std::map<std::string, collectives::Group*> groups_;
};

}  // namespace

train::SessionOptions options_for(const Task& task, const Layout& layout) {
  train::SessionOptions options{.forward = train::forward_of(task.model), .name = "small", .training = {}};
  options.training.precision = task.precision;
  options.training.micro_batch = {.samples = layout.micro, .sequence = kSequence};
  options.training.optimizer.clip = task.clip;
  options.training.optimizer.rule = task.rule != nullptr ? task.rule : &ops::update_rule(task.optimizer);
  options.training.optimizer.weight_decay = options.training.optimizer.rule->usual_weight_decay;
  options.training.optimizer.master = task.master;
  options.training.optimizer.moments = task.moments;
  options.training.freeze = task.freeze;
  options.training.freeze_as = task.freeze_as;
  options.training.amax_history = task.amax_history;
  options.training.loss_scaling.initial = 64.0;
  options.micro_batches = static_cast<std::int32_t>(task.samples / (layout.micro * layout.strategy.pipelines()));
  options.training.accumulates = options.micro_batches > 1;
  options.training.segmented = task.model.family == families::bert();
  options.strategy = layout.strategy;
  options.schedule = layout.schedule;
  options.backend = task.backend;
  options.device_limit = layout.device_limit;
  options.disk_folder = layout.disk_folder;
  options.file_system = task.file_system;
  options.keep_gradients = task.gradients;
  options.threads = 1;
  options.evaluate = true;
  return options;
}

void fill(train::Session& session, std::string_view program, std::int32_t micro_batch, std::int64_t first, std::int64_t vocab,
          std::uint32_t step) {
  const auto input = [&](std::string_view name) { return session.input(program, name, micro_batch); };
  const auto tokens = input("tokens");
  const auto targets = input("targets");
  const auto positions = input("positions");
  const auto segments = input("segments");
  const auto types = input("token_types");
  const auto samples = input("samples");
  // A stage of a pipeline reads some of the inputs.
  const std::size_t elements = std::max({tokens.size(), targets.size(), positions.size(), segments.size(), types.size()});
  for (std::size_t index = 0; index < elements; ++index) {
    const std::int64_t sample = first + static_cast<std::int64_t>(index) / kSequence;
    const std::int64_t place = static_cast<std::int64_t>(index) % kSequence;
    const std::int64_t value = sample * 31 + place * (7 + sample % 3) + step;
    if (!tokens.empty()) tokens[index] = static_cast<std::int32_t>(value % vocab);
    if (!targets.empty()) targets[index] = (sample + place) % 5 == 4 ? -1 : static_cast<std::int32_t>((value * 3 + 7) % vocab);
    if (!positions.empty()) positions[index] = static_cast<std::int32_t>(place);
    if (!segments.empty()) segments[index] = place < kSequence - sample % 3 ? 0 : -1;
    if (!types.empty()) types[index] = static_cast<std::int32_t>(place % 2);
  }
  for (std::size_t index = 0; index < samples.size(); ++index)
    samples[index] = static_cast<std::int32_t>(first + static_cast<std::int64_t>(index));
}

std::int64_t valid_targets(std::int64_t samples) {
  std::int64_t valid = 0;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    for (std::int64_t place = 0; place < kSequence; ++place) valid += (sample + place) % 5 == 4 ? 0 : 1;
  }
  return valid;
}

namespace {

std::string disagreement(const Outcome& one, const Outcome& other) {
  std::string text = fmt::format("ranks disagree about the state of the model: losses {} and {}, norms {} and {}, evaluations {} and {}",
                                 fmt::join(one.losses, " "), fmt::join(other.losses, " "), fmt::join(one.norms, " "),
                                 fmt::join(other.norms, " "), one.evaluation, other.evaluation);
  for (const auto& [name, values] : one.parameters) {
    const std::vector<float>& others = other.parameters.at(name);
    for (std::size_t index = 0; index < values.size(); ++index) {
      if (values[index] == others[index]) continue;
      text += fmt::format("; {}[{}] {} and {}", name, index, values[index], others[index]);
      break;
    }
  }
  return text;
}

// As the plan says it: "recompute optimal: 6.7% more arithmetic; ..."
double extra_arithmetic(const plan::Plan& plan) {
  for (const std::string& note : plan.notes) {
    const std::size_t colon = note.find(": ");
    if (note.find("more arithmetic") != std::string::npos && colon != std::string::npos) return std::stod(note.substr(colon + 2));
  }
  return 0.0;
}

void run_rank(const Task& task, const Layout& layout, Counting* transport, Outcome& outcome, std::mutex& mutex) {
  train::SessionOptions options = options_for(task, layout);
  options.transport = transport;
  train::Session session(options);
  plan::verify(session.plan(), "lowering");
  if (task.begin) task.begin(session);
  // Stages with degrees of their own go through all samples as one pipeline.
  const plan::Mesh& mesh = session.plan().mesh;
  const std::int64_t data_place = mesh.even() ? mesh.place(ops::Shares::batch, session.rank()) : 0;
  const std::int64_t own = layout.micro * options.micro_batches;
  const auto sent_so_far = [&] { return transport != nullptr ? transport->sent() : 0; };
  std::int64_t sent = 0;
  std::vector<double> losses;
  std::vector<double> norms;
  const auto round = static_cast<std::int32_t>(layout.strategy.flush_every);
  for (std::int32_t number = 1; number <= task.steps; number += round) {
    std::vector<train::StepInputs> inputs;
    for (std::int32_t step = 0; step < round; ++step) {
      const auto step_number = static_cast<std::uint32_t>(number + step);
      for (std::int32_t micro_batch = 0; micro_batch < options.micro_batches; ++micro_batch)
        fill(session, "train", step * options.micro_batches + micro_batch, data_place * own + micro_batch * layout.micro, task.model.vocab,
             step_number);
      inputs.push_back({.learning_rate = task.learning_rate, .step = step_number, .valid_targets = valid_targets(task.samples)});
    }
    const std::int64_t sent_before = sent_so_far();
    for (const train::StepResult& result : session.steps(inputs)) {
      losses.push_back(result.loss);
      norms.push_back(result.gradient_norm);
    }
    sent = sent_so_far() - sent_before;
  }
  std::map<std::string, std::vector<std::byte>> gradients;
  const base::IdVector<plan::BufferId, plan::Buffer>& buffers = session.executor().rank_class().buffers;
  for (std::uint32_t index = 0; task.gradients && index < buffers.size(); ++index) {
    const plan::Buffer& buffer = buffers[plan::BufferId{index}];
    if (buffer.kind != plan::BufferKind::gradient) continue;
    const std::byte* data = session.executor().host_view(plan::BufferId{index}, plan::Access::read);
    gradients[buffer.name].assign(data, data + buffer.bytes.count);
  }
  double evaluation = 0.0;
  const auto turn = static_cast<std::int32_t>(layout.strategy.turn());
  for (std::int32_t batch = 0; batch < options.micro_batches; batch += turn) {
    for (std::int32_t micro_batch = 0; micro_batch < turn; ++micro_batch)
      fill(session, "evaluate", micro_batch, data_place * own + (batch + micro_batch) * layout.micro, task.model.vocab, 0);
    evaluation += session.evaluate();
  }
  std::map<std::string, std::vector<float>> parameters;
  for (const train::ParameterInfo& info : train::parameters_of(session)) parameters[info.name] = train::read_parameter(session, info.name);

  const std::lock_guard lock(mutex);
  const auto rank = static_cast<std::size_t>(session.rank());
  outcome.sent[rank] = sent;
  const plan::Program& program = *plan::find_program(session.executor().rank_class(), "train");
  for (const plan::MeshAxis& entry : mesh.table()) {
    const std::int64_t sent_over =
        plan::wire_bytes(session.plan(), program, entry.row.axis, mesh.place(entry.row.axis, session.rank())).count;
    outcome.predicted[rank] += sent_over;
  }
  if (outcome.losses.empty()) {
    outcome.losses = losses;
    outcome.norms = norms;
    outcome.parameters = std::move(parameters);
    outcome.evaluation = evaluation;
    outcome.gradients = std::move(gradients);
    outcome.arena = plan::fullest_class(session.plan()).arena[0].count;
    outcome.host_arena = session.executor().rank_class().arena[static_cast<std::size_t>(plan::Tier::host)].count;
    outcome.disk_arena = session.executor().rank_class().arena[static_cast<std::size_t>(plan::Tier::disk)].count;
    outcome.extra_arithmetic = extra_arithmetic(session.plan());
    outcome.activations = lowering::most_activations(session.plan()).count;
    return;
  }
  // Whatever rank is asked, the answer is the same.
  if (outcome.losses != losses || outcome.norms != norms || outcome.parameters != parameters || outcome.evaluation != evaluation)
    throw std::runtime_error(disagreement(outcome, {losses, norms, parameters, {}, evaluation, {}, {}}));
}

}  // namespace

model::Model small_model(model::Family family) { return tests::small_model(family, {.width = 64, .ffn = 104, .vocab = 101}); }

Outcome train(const Task& task, const Layout& layout) {
  const auto ranks = static_cast<int>(layout.strategy.ranks());
  Outcome outcome;
  outcome.sent.resize(static_cast<std::size_t>(ranks));
  outcome.predicted.resize(static_cast<std::size_t>(ranks));
  std::mutex mutex;
  if (ranks == 1) {
    run_rank(task, layout, nullptr, outcome, mutex);
    return outcome;
  }
  collectives::local::run_threads(ranks, [&](collectives::Transport& inner) {
    Counting transport(inner);
    run_rank(task, layout, &transport, outcome, mutex);
  });
  return outcome;
}

void for_each_rank(const train::SessionOptions& options, const std::function<void(train::Session&)>& body) {
  if (options.strategy.ranks() == 1) {
    train::Session session(options);
    return body(session);
  }
  collectives::local::run_threads(static_cast<int>(options.strategy.ranks()), [&](collectives::Transport& transport) {
    train::SessionOptions own = options;
    own.transport = &transport;
    train::Session session(own);
    body(session);
  });
}

}  // namespace plimsoll::ranks
