#include "train/setup/setup.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "data/text_tokens.h"
#include "executor/cpu/cpu_backend.h"
#include "executor/cuda/load/cuda_backend.h"
#include "formats/token_file.h"
#include "io/files.h"
#include "io/posix_file_system.h"
#include "plan/waterline.h"
#include "storage/disk/block_store.h"
#include "strategy/forward.h"
#include "strategy/legality.h"
#include "strategy/schedules/csv.h"
#include "strategy/schedules/table.h"
#include "strategy/schedules/verify.h"
#include "train/machine/process_memory.h"
#include "train/setup/nearest_fit.h"
#include "train/setup/text.h"
#include "train/setup/this_machine.h"

namespace plimsoll::train {

namespace {

using OpenTokenizer = std::shared_ptr<const formats::tokenizer::Tokenizer>;

// BERT's batches may be padded, and padding is a segment of its own.
bool has_segments(const config::Run& run) { return run.data.mask_documents || run.model.family == model::Family::bert; }

// A corpus of up to this size is checked whole before any work starts; of a larger one the beginning, and the rest as it is read.
constexpr std::int64_t kIdsCheckedAtStart = std::int64_t{1} << 24;

void check_first_ids(const formats::TokenSource& source, std::int64_t vocab) {
  std::vector<std::int32_t> ids(std::size_t{1} << 16);
  const std::int64_t end = std::min(source.size(), kIdsCheckedAtStart);
  for (std::int64_t begin = 0; begin < end; begin += static_cast<std::int64_t>(ids.size())) {
    const std::span<std::int32_t> chunk = std::span(ids).first(static_cast<std::size_t>(std::min<std::int64_t>(ids.size(), end - begin)));
    source.read(begin, chunk);
    formats::check_ids(source, begin, chunk, vocab);
  }
}

using OpenText = std::function<std::unique_ptr<formats::TokenSource>(const io::Path&, const OpenTokenizer&)>;

std::shared_ptr<const formats::TokenSource> open_source(io::FileSystem& file_system, const config::Run& run,
                                                        const std::vector<std::string>& files, std::string_view key,
                                                        const OpenText& open_text) {
  if (files.empty())
    base::bad_input("{}: found no \"{}\"; expected the path of a text or token file, or of a folder of them", run.name, key);
  try {
    // Token files need no tokenizer, so it is read with the first text.
    std::shared_ptr<const formats::tokenizer::Tokenizer> tokenizer;
    return formats::open_tokens(file_system, files, {.token_bytes = run.data.token_bytes, .certain = run.given("data.token_bytes")},
                                [&](io::FileSystem& files_of, const io::Path& path) {
                                  if (!tokenizer) tokenizer = open_tokenizer(files_of, run);
                                  return open_text(path, tokenizer);
                                });
  } catch (const base::Error& error) {
    base::fail(error.kind(), "{}: \"{}\": {}", run.where(key), key, error.what());
  }
}

// Measured from the moment of planning to the end of a run with evaluation and saving: kernels' code, thread stacks,
// buffers of the writers. 7 to 8 MiB in f32, 8 to 12 in 16 bits.
constexpr base::Bytes kStillToCome{9ll << 20};
constexpr base::Bytes kNextMeasure{1ll << 20};
// What the driver, the libraries of products and attention, and machine code take on a GPU, so that a limit is a card of that size.
constexpr base::Bytes kBesideADevicesArena{700ll << 20};
// What program, driver and libraries take of the host's memory beside its arena: resident after some steps, 0.51 to 0.64 GB with CUDA 13.0
// and cuDNN 9.14 on models from 124 million parameters to 17 billion.
constexpr base::Bytes kProcessBesideADevice{580ll << 20};

constexpr std::int64_t kLargestSchedule = std::int64_t{64} << 20;

}  // namespace

namespace {

// What a rank keeps for tensors that cannot go to a drive as they are, and of every row of a table there.
base::Bytes disk_buffers(const config::Run& run) {
  const bool rows = run.strategy.embedding_rows == strategy::EmbeddingRows::disk;
  const base::Bytes marks{rows ? run.model.vocab * storage::disk::BlockStore::kMarkBytes : 0};
  const bool may = run.strategy_auto ? !run.limits.disk_path.empty() : uses_disk(run.strategy);
  return may ? base::Bytes{storage::disk::BlockStoreOptions{}.lanes * storage::disk::BlockStore::kBlock} + marks : base::Bytes{};
}

std::string count_text(std::int64_t count) {
  if (count >= 1'000'000'000) return fmt::format("{:.2f} B", static_cast<double>(count) / 1e9);
  if (count >= 1'000'000) return fmt::format("{:.1f} M", static_cast<double>(count) / 1e6);
  return fmt::format("{:.1f} k", static_cast<double>(count) / 1e3);
}

}  // namespace

strategy::schedules::Schedule open_schedule(io::FileSystem& file_system, const std::string& path, const strategy::schedules::Shape& shape) {
  namespace schedules = strategy::schedules;
  schedules::require_legal(path, schedules::reasons_against(shape));
  schedules::Schedule schedule = schedules::parse_csv(io::read_text(file_system, path, kLargestSchedule), path, shape);
  schedules::require_legal(path, schedules::reasons_against(schedule.shape));
  schedules::require_valid(schedule);
  return schedule;
}

std::optional<strategy::schedules::Schedule> schedule_of(io::FileSystem& file_system, const config::Run& run) {
  const strategy::Strategy& strategy = run.strategy;
  if (run.strategy_auto || strategy.pipe == 1 || !strategy.schedule.ends_with(strategy::schedules::kCsvSuffix)) return std::nullopt;
  strategy::schedules::Schedule schedule = open_schedule(
      file_system, strategy.schedule, {.ranks = strategy.pipe, .micro_batches = run.micro_batches(), .chunks = strategy.chunks});
  if (schedule.shape.batches != strategy.flush_every) {
    base::not_legal("{}: '{}' has {} update{}, expected {}; set \"strategy.flush_every\" to {}", run.where("strategy.schedule"),
                    strategy.schedule, schedule.shape.batches, schedule.shape.batches == 1 ? "" : "s", strategy.flush_every,
                    schedule.shape.batches);
  }
  if (schedule.placement == strategy::schedules::Placement::both_ways) {
    base::not_legal("{}: '{}' has every stage on two ranks, expected each on one", run.where("strategy.schedule"), strategy.schedule);
  }
  return schedule;
}

const executor::Backend& backend_of(const config::Run& run) {
  switch (run.device) {
    case config::Device::cpu: return executor::cpu_backend();
    case config::Device::automatic: {
      if (!executor::has_cuda_driver() || executor::why_no_cuda()) return executor::cpu_backend();
      const executor::Backend& cuda = executor::cuda_backend();
      return cuda.why_not_here() ? executor::cpu_backend() : cuda;
    }
    case config::Device::cuda: break;
  }
  const std::optional<std::string> missing = executor::why_no_cuda();
  if (missing) base::bad_input("{}: \"device\" is \"cuda\": {}", run.where("device"), *missing);
  return executor::cuda_backend();
}

namespace {

// Of all ranks' arenas in the host's memory; zero: none. Beside a GPU they are pinned: what the machine does not have would not be refused
// but end the process.
base::Bytes host_limit(const config::Run& run) {
  if (run.limits.host.count > 0 || backend_of(run).name() == executor::cpu_backend().name()) return run.limits.host;
  return executor::cpu_backend().memory(0).total - (process_memory() + kStillToCome + disk_buffers(run));
}

// Between flushes ranks are at different steps: nothing can be saved, evaluated or ended there.
void require_whole_rounds(const config::Run& run) {
  const std::int64_t round = run.strategy.flush_every;
  for (const auto& [key, every] : {std::pair<std::string_view, std::int64_t>{"steps", run.steps},
                                   {"checkpoint.every", run.checkpoint.every},
                                   {"eval.every", run.data.valid.empty() ? 0 : run.eval.every}}) {
    if (every % round == 0) continue;
    const std::int64_t below = every / round * round;
    const std::string nearest = below > 0 ? fmt::format("{} or {}", below, below + round) : fmt::format("{}", round);
    base::not_legal("{}: \"{}\" is {}, expected a multiple of \"strategy.flush_every\", which is {}; the nearest is {}", run.where(key),
                    key, every, round, nearest);
  }
}

// What a rank's arena may take where the plan is fitted to it. A share of the activation memory is a limit of its own.
base::Bytes arena_limit(const config::Run& run, const Programs& programs) {
  const bool fitted = programs.train && run.strategy.recompute == strategy::Recompute::optimal;
  if (!fitted || (run.strategy.recompute_memory > 0.0 && run.limits.device.count == 0)) return {};
  const Capacity capacity = capacity_of(run, programs.data_to_come);
  const std::int64_t shared_by = capacity.per_rank ? 1 : run.strategy.ranks();
  base::Bytes room = capacity.device - capacity.reserve;
  // What lies beside the arena is measured again when the plan is checked, and may be a little more by then.
  if (run.limits.device.count > 0 && backend_of(run).name() == executor::cpu_backend().name()) room -= kNextMeasure;
  return base::Bytes{std::max<std::int64_t>(1, room.count / shared_by)};
}

double link_here(const config::Run& run) {
  io::PosixFileSystem files;
  return measured_link(files, run);
}

}  // namespace

namespace {

// Who writes reads a row at a time: there is nothing to share out of it.
strategy::Strategy strategy_for(const config::Run& run, const Programs& programs) {
  if (programs.train) return run.strategy;
  strategy::Strategy forward = strategy::without_training(run.strategy);
  if (programs.decode) forward.sequence_parallel = false;
  return forward;
}

}  // namespace

SessionOptions session_options(const config::Run& run, const Programs& programs) {
  if (!programs.train) {
    strategy::require_legal_without_training(run.strategy, programs.decode.has_value());
  } else if (!run.strategy_auto) {
    strategy::require_legal(run.strategy, run.micro_batches());
  }
  if (programs.train) require_whole_rounds(run);
  model::Training training = run.training();
  training.segmented = has_segments(run);
  return {.forward = forward_of(run.model),
          .name = describe(run),
          .training = training,
          .micro_batches = static_cast<std::int32_t>(run.micro_batches()),
          .strategy = strategy_for(run, programs),
          .schedule = programs.schedule,
          .transport = programs.transport,
          .backend = &backend_of(run),
          .disk_folder = run.limits.disk_path,
          .deterministic = run.deterministic,
          .threads = static_cast<int>(run.threads),
          .device_limit = arena_limit(run, programs),
          .host_limit = host_limit(run),
          .link = link_here(run),
          .seed = static_cast<std::uint64_t>(run.seed),
          .draw_parameters = programs.draw_parameters,
          .train = programs.train,
          .evaluate = programs.evaluate,
          .evaluation_turns = programs.evaluation_turns,
          .decode = programs.decode};
}

std::string describe(const config::Run& run) {
  const std::string name = run.preset.empty() ? std::string(model::name_of(run.model.family)) : run.preset;
  const std::int64_t micro_batches = run.micro_batches();
  return fmt::format("{}, {} parameters, {}, {} x {} tokens a step in {} micro-batch{}", name,
                     count_text(model::parameter_count(run.model)), config::name_of(run.precision), run.batch.global, run.batch.sequence,
                     micro_batches, micro_batches == 1 ? "" : "es");
}

std::shared_ptr<const data::BatchReader> open_reader(io::FileSystem& file_system, const config::Run& run,
                                                     const std::vector<std::string>& files, bool evaluation) {
  std::shared_ptr<const formats::TokenSource> source =
      open_source(file_system, run, files, evaluation ? "data.valid" : "data.train",
                  [&](const io::Path& path, const OpenTokenizer& tokenizer) { return data::open_text(file_system, path, tokenizer); });
  check_first_ids(*source, run.model.vocab);
  data::BatchReaderOptions options{.sequence = run.batch.sequence,
                                   .vocab = run.model.vocab,
                                   .seed = static_cast<std::uint64_t>(run.seed),
                                   .shuffle = run.data.shuffle && !evaluation,
                                   .include_tail = evaluation};
  if (run.data.mask_documents) {
    options.documents = data::DocumentOptions{};
    if (run.data.document_end >= 0) options.documents->end_token = static_cast<std::int32_t>(run.data.document_end);
  }
  if (run.model.family == model::Family::bert) {
    if (run.mlm.mask_token == config::Mlm::kNone) {
      base::bad_input(
          "{}: the tokenizer {} has no mask token, without which bert cannot be trained; set \"mlm.mask_token\" to the id of one",
          run.where("data.tokenizer"), run.data.tokenizer);
    }
    if (run.mlm.mask_token >= run.model.vocab) {
      base::bad_input("{}: found mask token {}, expected an id of the vocabulary of {}; set \"mlm.mask_token\"",
                      run.where("mlm.mask_token"), run.mlm.mask_token, run.model.vocab);
    }
    options.masked = data::MaskedLanguageOptions{.probability = run.mlm.probability,
                                                 .mask = run.mlm.mask,
                                                 .random = run.mlm.random,
                                                 .mask_id = static_cast<std::int32_t>(run.mlm.mask_token)};
  }
  return std::make_shared<data::BatchReader>(std::move(source), options);
}

std::string data_digest(const data::BatchReader& reader, const config::Run& run) {
  constexpr std::int64_t kLookedAt = 64;
  const std::int64_t samples = reader.sampler().samples_per_epoch();
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(run.batch.sequence));
  std::vector<std::int32_t> targets(tokens.size());
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (std::int64_t i = 0; i < std::min(samples, kLookedAt); ++i) {
    const std::int64_t sample = samples <= kLookedAt ? i : i * (samples / kLookedAt);
    reader.read({sample, 1}, {.rows = 1, .sequence = run.batch.sequence, .tokens = tokens, .targets = targets});
    for (std::int32_t token : tokens) hash = (hash ^ static_cast<std::uint32_t>(token)) * 0x100000001B3u;
  }
  return fmt::format("{} samples of digest {:016x}", samples, hash);
}

base::Bytes data_to_come(io::FileSystem& file_system, const config::Run& run) {
  base::Bytes tokens;
  const auto count = [&](const io::Path& path, const OpenTokenizer& tokenizer) {
    tokens += base::Bytes{data::expected_token_bytes(file_system, path, *tokenizer)};
    return formats::tokens_in_memory(path.string(), {0});
  };
  for (const auto& [files, key] : {std::pair{run.data.train, "data.train"}, {run.data.valid, "data.valid"}}) {
    try {
      if (!files.empty()) open_source(file_system, run, files, key, count);
    } catch (const base::Error&) {  // a plan can be asked for before there are data
    }
  }
  return tokens;
}

data::BatchView batch_view(Session& session, std::string_view program, std::int32_t micro_batch, const config::Run& run) {
  return {.rows = run.batch.micro,
          .sequence = run.batch.sequence,
          .tokens = session.input(program, "tokens", micro_batch),
          .targets = session.input(program, "targets", micro_batch),
          .positions = session.input(program, "positions", micro_batch),
          .segments = session.input(program, "segments", micro_batch),
          .token_types = session.input(program, "token_types", micro_batch),
          .samples = session.input(program, "samples", micro_batch)};
}

bool uses_disk(const strategy::Strategy& strategy) {
  const strategy::Offload& offload = strategy.offload;
  return strategy.embedding_rows == strategy::EmbeddingRows::disk ||
         offload.optimizer.disk + offload.gradients.disk + offload.params.disk + offload.activations.disk > 0.0;
}

Capacity capacity_of(const config::Run& run, base::Bytes data_to_come) {
  const base::Bytes reserve = process_memory() + data_to_come + kStillToCome + disk_buffers(run);
  const base::Bytes host = host_limit(run);
  std::string host_origin = run.limits.host.count > 0 ? "\"limits.host\"" : "what this machine has beside the program";
  const base::Bytes disk = run.limits.disk;
  const executor::Backend& backend = backend_of(run);
  const bool processor = backend.name() == executor::cpu_backend().name();
  const base::Bytes on_host = processor ? base::Bytes{} : kProcessBesideADevice + disk_buffers(run);
  if (run.limits.device.count > 0) {
    return {run.limits.device,
            processor ? reserve : kBesideADevicesArena,
            run.where("limits.device"),
            true,
            host,
            disk,
            std::move(host_origin),
            on_host};
  }
  if (const std::optional<std::string> reason = backend.why_not_here())
    base::bad_input("{}: \"device\" is \"{}\": {}", run.where("device"), backend.name(), *reason);
  // Beside a device's arena lies what its driver keeps, and that is not in `free`.
  const executor::DeviceMemory memory = backend.memory(0);
  if (processor) return {memory.total, reserve, memory.name, false, host, disk};
  return {memory.free, base::Bytes{}, fmt::format("what is free on {}", memory.name), true, host, disk, std::move(host_origin), on_host};
}

namespace {

// What the fullest rank has in a tier at its fullest moment.
std::string kinds_text(const plan::RankClass& rank_class, plan::Tier tier) {
  const plan::Waterline line = plan::waterline(rank_class, 0, tier);
  std::string table;
  for (const auto& [kind, bytes] : plan::by_kind(rank_class, 0, tier, line.peak_call))
    table += fmt::format("\n  {:<12} {:>10}", plan::name_of(kind), base::to_string(bytes));
  return table;
}

// A limit on what all ranks have in a slower tier.
std::optional<std::string> too_large_for(const plan::Plan& plan, plan::Tier tier, base::Bytes limit, std::string_view origin) {
  const base::Bytes needed = plan::arena_of_all(plan, tier);
  if (limit.count == 0 || needed <= limit) return std::nullopt;
  const std::string_view where = tier == plan::Tier::host ? "the host's memory" : "the disk";
  // The rank that is fullest on its device need not be the one that has most elsewhere.
  const auto in_tier = [&](const plan::RankClass& rank_class) { return rank_class.arena[static_cast<std::size_t>(tier)]; };
  const plan::RankClass& fullest =
      *std::max_element(plan.classes.begin(), plan.classes.end(), [&](const auto& a, const auto& b) { return in_tier(a) < in_tier(b); });
  return fmt::format("{}\ndoes not fit: it needs {} of {} for {} rank{}, and {} is {} - {} too much. {}, the fullest there, holds:{}",
                     plan.model, base::to_string(needed), where, plan.mesh.ranks(), plan.mesh.ranks() == 1 ? "" : "s", origin,
                     base::to_string(limit), base::to_string(needed - limit),
                     plan.classes.size() == 1 ? "A rank" : fmt::format("\"{}\"", fullest.name), kinds_text(fullest, tier));
}

}  // namespace

std::optional<std::string> why_too_large(const plan::Plan& plan, const Capacity& capacity) {
  const plan::RankClass& rank_class = plan::fullest_class(plan);
  if (auto why = too_large_for(plan, plan::Tier::host, capacity.host, capacity.host_origin)) return why;
  if (auto why = too_large_for(plan, plan::Tier::disk, capacity.disk, "\"limits.disk\"")) return why;
  // Where nobody set a limit, the machine's memory holds both tiers.
  const base::Bytes host = rank_class.arena[static_cast<std::size_t>(plan::Tier::host)];
  const base::Bytes arena = rank_class.arena[static_cast<std::size_t>(plan::Tier::device)] + (capacity.per_rank ? base::Bytes{} : host);
  const base::Bytes needed = capacity.per_rank ? arena : base::Bytes{arena.count * plan.mesh.ranks()};
  if (needed + capacity.reserve <= capacity.device) return std::nullopt;
  const std::string table = kinds_text(rank_class, plan::Tier::device);
  const std::string ranks = needed == arena ? "" : fmt::format(" x {} ranks", plan.mesh.ranks());
  return fmt::format(
      "{}\ndoes not fit: it needs {} ({} of arena{} and {} beside it), and {} is {} - {} too much. At its fullest moment the arena "
      "holds:{}",
      plan.model, base::to_string(needed + capacity.reserve), base::to_string(arena), ranks, base::to_string(capacity.reserve),
      capacity.origin, base::to_string(capacity.device), base::to_string(needed + capacity.reserve - capacity.device), table);
}

namespace {

// What `make` makes; where it finds no order within the limit, why not in full.
template <typename Make>
auto within(const SessionOptions& options, const config::Run& run, const Make& make) {
  const bool fitted = options.strategy.recompute == strategy::Recompute::optimal && options.device_limit.count > 0;
  if (!fitted) return make();
  std::string why;
  try {
    return make();
  } catch (const base::Error& error) {
    if (error.kind() != base::ErrorKind::not_legal) throw;
    why = error.what();
  }
  SessionOptions full = options;
  full.strategy.recompute = strategy::Recompute::full;
  full.strategy.recompute_every = 1;
  full.strategy.recompute_memory = 0.0;
  std::string table;
  try {
    table = kinds_text(plan::fullest_class(plan_session(full)), plan::Tier::device);
  } catch (const base::Error&) {  // it was not the limit
    base::not_legal("{}", why);
  }
  base::not_legal("{}\nWith everything made again the arena holds at its fullest moment:{}\n{}", why, table,
                  nearest_fit(options, capacity_of(run)));
}

}  // namespace

plan::Plan plan_within(const SessionOptions& options, const config::Run& run) {
  return within(options, run, [&] { return plan_session(options); });
}

PreparedSession prepare_within(const SessionOptions& options, const config::Run& run) {
  return within(options, run, [&] { return prepare_session(options); });
}

void require_fit(const plan::Plan& plan, const Capacity& capacity, const SessionOptions& options) {
  if (const std::optional<std::string> why = why_too_large(plan, capacity)) base::not_legal("{}\n{}", *why, nearest_fit(options, capacity));
}

Session make_session(io::FileSystem& file_system, const config::Run& run, const Programs& programs, const Capacity& capacity) {
  SessionOptions options = session_options(run, programs);
  options.file_system = &file_system;
  PreparedSession prepared = prepare_within(options, run);
  const plan::Plan& plan = prepared.plan;
  require_fit(plan, capacity, options);
  // Of what all ranks will write together; each looks again for its own part when it opens its file.
  const base::Bytes disk = plan::arena_of_all(plan, plan::Tier::disk);
  if ((disk.count > 0 || uses_disk(options.strategy)) && (programs.transport == nullptr || programs.transport->rank() == 0))
    storage::disk::check_folder(file_system, run.limits.disk_path, disk);
  return Session(std::move(prepared));
}

}  // namespace plimsoll::train
