#include "config/fields.h"

#include <algorithm>
#include <iterator>

namespace plimsoll::config {

namespace {

constexpr double kMostSequences = 1e9;
constexpr double kMostSteps = 1e12;
constexpr std::string_view kNoForm = "none";

// One path, or several that are read one after the other.
template <typename Get>
Field paths_field(std::string key, Get get, std::string about) {
  Field field{.key = std::move(key), .about = std::move(about), .expects = "a path or an array of paths", .takes_text = true};
  field.read = [get](const base::Json& value, Run& run) {
    constexpr std::size_t kMostPaths = 100'000;
    std::vector<std::string> paths;
    const auto add = [&](const base::Json& path) {
      // A NUL would cut a path short where the operating system reads it.
      if (!path.is_string() || path.as_string().find('\0') != std::string::npos) return false;
      paths.push_back(path.as_string());
      return true;
    };
    if (value.is_array()) {
      if (value.size() > kMostPaths) return false;
      for (const base::Json& path : value.as_array()) {
        if (!add(path) || path.as_string().empty()) return false;
      }
    } else if (!add(value)) {
      return false;
    }
    if (paths == std::vector<std::string>{""}) paths.clear();
    get(run) = std::move(paths);
    return true;
  };
  field.write = [get](const Run& run) {
    const std::vector<std::string>& paths = get(run);
    if (paths.size() < 2) return base::Json(paths.empty() ? std::string() : paths.front());
    base::Json list = base::Json::array();
    for (const std::string& path : paths) list.push(path);
    return list;
  };
  return field;
}

std::vector<Field> data_fields() {
  Field token_bytes{.key = "data.token_bytes",
                    .about = "Size of a token in files without a header; files with one say it themselves.",
                    .expects = "2 or 4",
                    .choices = {"2", "4"}};
  token_bytes.read = [](const base::Json& value, Run& run) {
    if (!value.is_integer() || (value.as_integer() != 2 && value.as_integer() != 4)) return false;
    run.data.token_bytes = value.as_integer();
    return true;
  };
  token_bytes.write = [](const Run& run) { return base::Json(run.data.token_bytes); };
  return {
      paths_field("data.train", PLIMSOLL_AT(data.train),
                  "Training text or token files: a file, a folder (all files in it, by name), a pattern with `*`, or an array of these."),
      paths_field("data.valid", PLIMSOLL_AT(data.valid), "Text or tokens to evaluate on, named likewise; empty for none."),
      text_field("data.tokenizer", PLIMSOLL_AT(data.tokenizer), "\"bytes\" or a path",
                 "`bytes` (each byte is a token), a tokenizer.json or a SentencePiece .model; a model folder's own unless given."),
      flag_field("data.shuffle", PLIMSOLL_AT(data.shuffle), "Draw samples in random order; false keeps the order of the file."),
      std::move(token_bytes),
      flag_field("data.mask_documents", PLIMSOLL_AT(data.mask_documents),
                 "Keep attention, positions and targets within each document of a sample."),
      number_field("data.document_end", PLIMSOLL_AT(data.document_end), count_from(-1, kMostTokens),
                   "Token that ends a document; -1 where the file itself says where documents end.")
          .derived_from("`-1`; with data.mask_documents the tokenizer's, where data.tokenizer is given"),
      number_field("mlm.probability", PLIMSOLL_AT(mlm.probability), {.min = 0.0, .max = 1.0, .above_min = true},
                   "Share of tokens chosen for prediction.")
          .with_families(Families::bert),
      number_field("mlm.mask", PLIMSOLL_AT(mlm.mask), between(0.0, 1.0), "Share of the chosen tokens replaced by the mask token.")
          .with_families(Families::bert),
      number_field("mlm.random", PLIMSOLL_AT(mlm.random), between(0.0, 1.0),
                   "Share of the chosen tokens replaced by a random one; the rest stay as they are.")
          .with_families(Families::bert),
      number_field("mlm.mask_token", PLIMSOLL_AT(mlm.mask_token), count_from(0, kMostTokens), "Id of the mask token.")
          .with_families(Families::bert)
          .derived_from("the tokenizer's, else `103`"),
      number_field("batch.global", PLIMSOLL_AT(batch.global), count_from(1, kMostSequences), "Sequences in one step, over all ranks."),
      number_field("batch.micro", PLIMSOLL_AT(batch.micro), count_from(1, kMostSequences),
                   "Sequences that a rank works on at a time; gradients of several micro-batches are added up.")
          .derived_from("batch.global / strategy.data"),
      number_field("batch.sequence", PLIMSOLL_AT(batch.sequence), count_from(1, kMostTokens), "Tokens in a sequence.")
          .derived_from("model.context"),
  };
}

bool read_point(const base::Json& value, LrPoint& point) {
  if (!value.is_array() || value.size() != 2) return false;
  const base::Json& step = value.at(std::size_t{0});
  const base::Json& ratio = value.at(std::size_t{1});
  if (!step.is_integer() || !between(0, kMostSteps).contains(step.as_double())) return false;
  if (!ratio.is_number() || !between(0.0, 1.0).contains(ratio.as_double())) return false;
  point = {.step = step.as_integer(), .ratio = ratio.as_double()};
  return true;
}

Field points_field() {
  Field field{.key = "lr_schedule.points",
              .about = "points: shares of `optimizer.lr` at certain steps, with straight lines between them.",
              .expects = "an array of [step, share] with growing steps, such as [[0, 0.1], [100, 1.0]]"};
  field.read = [](const base::Json& value, Run& run) {
    constexpr std::size_t kMostPoints = 100'000;
    if (!value.is_array() || value.size() > kMostPoints) return false;
    std::vector<LrPoint> points(value.size());
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (!read_point(value.at(i), points[i]) || (i > 0 && points[i].step <= points[i - 1].step)) return false;
    }
    run.lr_schedule.points = std::move(points);
    return true;
  };
  field.write = [](const Run& run) {
    base::Json points = base::Json::array();
    for (const LrPoint& point : run.lr_schedule.points) points.push(base::Json::array({point.step, point.ratio}));
    return points;
  };
  return field;
}

std::vector<Field> schedule_fields() {
  return {
      choice_field(
          "lr_schedule.type", PLIMSOLL_AT(lr_schedule.type),
          "How the learning rate goes on after the warmup; `wsd` is stable, then a linear fall; `points` follows `lr_schedule.points`."),
      number_field("lr_schedule.warmup", PLIMSOLL_AT(lr_schedule.warmup), count_from(0, kMostSteps), "Steps of rise to the full rate."),
      choice_field("lr_schedule.warmup_shape", PLIMSOLL_AT(lr_schedule.warmup_shape),
                   "How the rate rises: evenly, or by the logarithm of the step."),
      number_field("lr_schedule.warmup_from", PLIMSOLL_AT(lr_schedule.warmup_from), between(0.0, 1.0),
                   "Share of `optimizer.lr` that the warmup starts at."),
      number_field("lr_schedule.min_ratio", PLIMSOLL_AT(lr_schedule.min_ratio), between(0.0, 1.0),
                   "Share of `optimizer.lr` that is left at the end of the fall."),
      number_field("lr_schedule.end", PLIMSOLL_AT(lr_schedule.end), count_from(0, kMostSteps),
                   "Step at which the fall ends; 0 = the last step."),
      points_field(),
      number_field("lr_schedule.decay", PLIMSOLL_AT(lr_schedule.decay), count_from(0, kMostSteps), "wsd: steps of the final fall.")
          .derived_from("steps / 10 for wsd"),
      number_field(
          "fp8.history", PLIMSOLL_AT(amax_history), count_from(0, 1024),
          "fp8: micro-batches whose largest values scale the next one (delayed scaling); 0 = each tensor's own (current scaling)."),
      number_field("loss_scale.initial", PLIMSOLL_AT(loss_scale.initial), {.min = 0.0, .max = 1e38, .above_min = true},
                   "fp16: what the loss is multiplied by at first."),
      number_field("loss_scale.window", PLIMSOLL_AT(loss_scale.window), count_from(0, kMostSteps),
                   "fp16: steps without overflow after which the scale doubles; 0 keeps it fixed."),
      number_field("loss_scale.min", PLIMSOLL_AT(loss_scale.minimum), above(0.0), "fp16: the scale never falls below this."),
      number_field("loss_scale.hysteresis", PLIMSOLL_AT(loss_scale.hysteresis), count_from(1, 1e6),
                   "fp16: overflows until the scale is halved."),
  };
}

Field freeze_field() {
  Field field{.key = "freeze",
              .about =
                  "Names of parameters, or patterns with `*`, that are not trained: no gradient, no optimizer state, and in 16 bits no f32 "
                  "copy, so that they come out rounded.",
              .expects = "an array of patterns, such as [\"*.embed*\"]"};
  field.read = [](const base::Json& value, Run& run) {
    if (!value.is_array()) return false;
    run.freeze.clear();
    for (const base::Json& pattern : value.as_array()) {
      if (!pattern.is_string() || pattern.as_string().empty()) return false;
      run.freeze.push_back(pattern.as_string());
    }
    return true;
  };
  field.write = [](const Run& run) {
    base::Json patterns = base::Json::array();
    for (const std::string& pattern : run.freeze) patterns.push(pattern);
    return patterns;
  };
  return field;
}

Field freeze_as_field() {
  Field field{
      .key = "freeze_as",
      .about =
          "How the matrices named by `freeze` are stored, but those of the embedding and the head: as they are computed with, or in "
          "blocks of 64 with a scale each (8.25 bits an element for int8 and fp8, 4.25 for int4), decoded for each pass of a block.",
      .choices = {std::string(kNoForm)},
      .takes_text = true};
  for (const ops::FormInfo& form : ops::forms()) field.choices.emplace_back(form.name);
  field.expects = expects_choice(field.choices);
  field.read = [](const base::Json& value, Run& run) {
    if (!value.is_string()) return false;
    run.freeze_as = ops::find_form(value.as_string());
    return run.freeze_as != nullptr || value.as_string() == kNoForm;
  };
  field.write = [](const Run& run) { return base::Json(std::string(run.freeze_as == nullptr ? kNoForm : run.freeze_as->name)); };
  return field;
}

// A type, or the planner's choice.
Field precision_field() {
  Field field = choice_field("precision", PLIMSOLL_AT(precision),
                             "Type of weights and activations; the 16-bit ones keep f32 master weights. `auto`: what is fastest, with "
                             "`strategy` `auto`.");
  field.choices.emplace_back("auto");
  field.expects = expects_choice(field.choices);
  field.read = [read = field.read](const base::Json& value, Run& run) {
    run.precision_auto = value.is_string() && value.as_string() == "auto";
    return run.precision_auto || read(value, run);
  };
  field.write = [write = field.write](const Run& run) { return run.precision_auto ? base::Json("auto") : write(run); };
  return field;
}

std::vector<Field> run_fields() {
  return {
      precision_field(),
      choice_field("device", PLIMSOLL_AT(device), "Where to compute; `auto` takes a GPU if there is one."),
      number_field("steps", PLIMSOLL_AT(steps), count_from(0, kMostSteps), "Updates of the weights."),
      number_field("seed", PLIMSOLL_AT(seed), at_least(0), "Of initial weights, data order and dropout."),
      number_field("threads", PLIMSOLL_AT(threads), count_from(0, 65536),
                   "CPU threads of a rank; 0 = the cores that the process may use, shared out to the ranks of the machine."),
      flag_field("deterministic", PLIMSOLL_AT(deterministic),
                 "Same run, same bits; false allows faster kernels: sums in any order, bf16 logits on a GPU."),
      choice_field("transport", PLIMSOLL_AT(transport), "How ranks talk; `auto` chooses by how they were started."),
      freeze_field(),
      freeze_as_field(),
      text_field("out", PLIMSOLL_AT(out), "a path", "Folder of metrics and checkpoints.").derived_from("runs/ and the run file's name"),
      number_field("eval.every", PLIMSOLL_AT(eval.every), count_from(0, kMostSteps),
                   "Steps between evaluations on `data.valid`; 0 = never.")
          .derived_from("100, rounded up to a multiple of strategy.flush_every"),
      number_field("eval.batches", PLIMSOLL_AT(eval.batches), count_from(0, kMostSteps),
                   "Batches of an evaluation during training, each of `batch.global` sequences; 0 = all of `data.valid`."),
      number_field("checkpoint.every", PLIMSOLL_AT(checkpoint.every), count_from(0, kMostSteps),
                   "Steps between checkpoints; 0 = only at the end.")
          .derived_from("100, rounded up to a multiple of strategy.flush_every"),
      number_field("checkpoint.keep", PLIMSOLL_AT(checkpoint.keep), count_from(2, 1e6),
                   "Newest checkpoints that are kept; at least 2, so that there is one to fall back to."),
      flag_field("checkpoint.async", PLIMSOLL_AT(checkpoint.async),
                 "Write checkpoints while training goes on, reading in place what the next update has not yet changed."),
      choice_field("checkpoint.on_full_disk", PLIMSOLL_AT(checkpoint.on_full_disk),
                   "A save that finds no room: end the run, or pause and try again. Earlier checkpoints are kept either way."),
      number_field("checkpoint.retry_seconds", PLIMSOLL_AT(checkpoint.retry_seconds), between(0.01, 86400),
                   "Pause between attempts on a full disk."),
  };
}

std::vector<Field> make_table() {
  std::vector<Field> table;
  const auto append = [&](std::vector<Field> part) {
    table.insert(table.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
  };
  append(model_fields());
  append(data_fields());
  append(optimizer_fields());
  append(schedule_fields());
  append(strategy_fields());
  append(limit_fields());
  append(communication_fields());
  append(run_fields());
  return table;
}

}  // namespace

const std::vector<Field>& fields() {
  static const std::vector<Field> table = make_table();
  return table;
}

const Field* find_field(std::string_view key) {
  for (const Field& field : fields()) {
    if (field.key == key) return &field;
  }
  return nullptr;
}

bool is_group(std::string_view path) {
  return std::any_of(fields().begin(), fields().end(), [&](const Field& field) {
    return field.key.size() > path.size() && field.key.starts_with(path) && field.key[path.size()] == '.';
  });
}

std::vector<std::string> keys_below(std::string_view group) {
  std::vector<std::string> keys;
  const std::string prefix = group.empty() ? std::string() : fmt::format("{}.", group);
  for (const Field& field : fields()) {
    if (!field.key.starts_with(prefix)) continue;
    const std::string rest = field.key.substr(prefix.size());
    std::string key = rest.substr(0, rest.find('.'));
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace plimsoll::config
