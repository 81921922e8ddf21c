#include "cli/app.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "base/processor.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/manual.h"
#include "cli/unknown_option.h"

namespace plimsoll::cli {

namespace {

// Unlike CLI::Range it refuses "nan", and names no bound that nobody meant.
CLI::Validator number(double min, double max = std::numeric_limits<double>::infinity()) {
  const std::string wanted = std::isinf(max) ? fmt::format("a number >= {}", min) : fmt::format("a number from {} to {}", min, max);
  return {[=](std::string& text) {
            double value = 0.0;
            const bool good = CLI::detail::lexical_cast(text, value) && std::isfinite(value) && value >= min && value <= max;
            return good ? std::string() : fmt::format("found {}, expected {}", text, wanted);
          },
          "NUMBER"};
}

// Unlike CLI::NonNegativeNumber it refuses an empty word, which would count as 0, and names no bound of a hundred digits.
CLI::Validator not_negative() {
  return {[](std::string& text) {
            std::int64_t value = 0;
            const bool good = !text.empty() && CLI::detail::lexical_cast(text, value) && value >= 0;
            return good ? std::string() : fmt::format("found {}, expected a whole number >= 0", text.empty() ? "nothing" : text);
          },
          "NONNEGATIVE"};
}

void add_set(CLI::App& command, RunOptions& options) {
  command.add_option("--set", options.overrides, "override a setting of the run file: a.b=c (repeatable)")->type_name("KEY=VALUE");
}

void add_deepspeed(CLI::App& command, RunOptions& options) {
  command.add_option("--deepspeed", options.deepspeed, "take settings from this DeepSpeed configuration too, see docs/deepspeed.md")
      ->type_name("FILE");
}

void add_run_options(CLI::App& command, RunOptions& options) {
  command.add_option("run", options.file, "run file (JSON; comments allowed), see docs/run-file.md; - reads the standard input")
      ->required();
  add_set(command, options);
  add_deepspeed(command, options);
}

void add_ranks(CLI::App& command, RunOptions& options) {
  command
      .add_option("--ranks", options.ranks,
                  "ranks on this machine, as threads of one process; without \"strategy.data\" they become its data ranks")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
}

void add_processes(CLI::App& command, bool& processes) {
  command.add_flag("--processes", processes, "ranks are supervised processes over shared memory, not threads");
}

void add_json(CLI::App& command, bool& json) { command.add_flag("--json", json, "machine-readable output"); }

void add_train(CLI::App& app) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* command = app.add_subcommand("train", "train a model; resumes from the newest valid checkpoint in the run's folder");
  add_run_options(*command, options->run);
  add_ranks(*command, options->run);
  add_processes(*command, options->processes);
  command->add_option("--trace", options->trace, "write a Chrome trace of one step to this file")->type_name("FILE");
  command
      ->add_option("--html", options->html,
                   "write the page of what ran, predicted beside measured, to this file too; the run's folder has it as page.html")
      ->type_name("FILE");
  command->add_flag("--fresh", options->fresh, "remove the run's checkpoints and start over");
  command
      ->add_option("--until", options->until,
                   "stop after this step and save, as at a signal; the next start goes on, with other settings of the strategy if you like")
      ->type_name("STEP")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 32));
  command->callback([options] { train_command(*options); });
}

void add_plan(CLI::App& app) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command = app.add_subcommand("plan", "show how a run would be trained: what fits where, to the byte");
  add_run_options(*command, options->run);
  add_ranks(*command, options->run);
  add_json(*command, options->run.json);
  command->add_option("--out", options->out, "store the plan in this file")->type_name("FILE");
  command->add_option("--html", options->html, "draw it on a page for a browser, one file that fetches nothing")->type_name("FILE");
  command->add_flag("--full", options->full, "print every procedure, buffer and call; with --passes, the graphs too");
  command->add_flag("--passes", options->passes,
                    "print the passes that make the plan of the model's graph, in order, and which have work to do");
  CLI::Option* schedule = command
                              ->add_option("--schedule", options->schedules,
                                           "draw this pipeline schedule for the run's ranks and micro-batches instead, or several side by "
                                           "side: gpipe,1f1b,interleaved; a .csv file is one too, and --out stores one (docs/schedules.md)")
                              ->type_name("NAME")
                              ->delimiter(',');
  command->add_option("--svg", options->svg, "store the drawing of --schedule in this file")->type_name("FILE")->needs(schedule);
  command
      ->add_option("--cluster", options->cluster,
                   "decide what the run leaves open for this cluster: a preset with a count of nodes (dgx-a100-80g:128), a .json file, or "
                   "this (docs/clusters.md)")
      ->type_name("NAME");
  command
      ->add_option("--planner", options->planner,
                   "plimsoll; brute: every strategy is evaluated; or show beside ours what pipedream, 2bw, piper, flexflow or alpa-inter "
                   "would choose")
      ->check(CLI::IsMember({"plimsoll", "brute", "pipedream", "2bw", "piper", "flexflow", "alpa-inter"}))
      ->capture_default_str();
  command->add_option("--time-limit", options->time_limit, "seconds that the search may take")->check(number(0.0))->capture_default_str();
  CLI::Option* largest =
      command->add_flag("--largest", options->largest, "say how large a model of the run's proportions the cluster can train");
  command->add_option("--floor", options->floor, "share of the devices' rate that the largest model must reach, from 0 (however slow) to 1")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str()
      ->needs(largest);
  command->add_option("--longest-step", options->longest_step, "seconds that a step of the largest model may take; 0: any")
      ->check(number(0.0))
      ->capture_default_str()
      ->needs(largest);
  command->add_flag("--smallest", options->smallest, "say how many nodes of the cluster the model needs");
  CLI::Option* tokens = command->add_option("--tokens", options->tokens, "say what a training on so many tokens takes: days, energy, money")
                            ->check(number(1.0));
  command->add_option("--price", options->price, "of a device for an hour; the cluster's unless given")->check(number(0.0))->needs(tokens);
  command->add_option("--co2", options->co2, "kilograms for a kWh")->check(number(0.0))->capture_default_str()->needs(tokens);
  CLI::Option* mtbf =
      command->add_option("--mtbf", options->mtbf, "hours between failures of a device: how often to save, and what is left")
          ->check(number(1e-6));
  command->add_option("--storage", options->storage, "what all nodes together can save in a second, as 50GB; the cluster's unless given")
      ->type_name("BYTES")
      ->needs(mtbf);
  command->add_option("--restart", options->restart, "seconds from a failure to the next step; the cluster's unless given")
      ->check(number(0.0))
      ->needs(mtbf);
  command->callback([options, command] {
    for (const CLI::Option* option : command->get_options()) {
      if (option->count() > 0) options->given.insert(option->get_name());
    }
    plan_command(*options);
  });
}

void add_simulate(CLI::App& app) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* command =
      app.add_subcommand("simulate", "run a step of a given strategy on a virtual clock, for a cluster that need not be here");
  add_run_options(*command, options->run);
  add_ranks(*command, options->run);
  add_json(*command, options->run.json);
  command
      ->add_option("--cluster", options->cluster,
                   "a preset with a count of nodes (dgx-a100-80g:128), a .json file, or this machine as calibrated (docs/clusters.md)")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--trace", options->trace, "write the step as a Chrome trace to this file")->type_name("FILE");
  command->add_option("--html", options->html, "write the step as one page for a browser to this file")->type_name("FILE");
  CLI::Option* jitter = command->add_option("--jitter", options->jitter, "standard deviation of computing times, as a share of them")
                            ->check(number(0.0, 1.0));
  command->add_option("--slow", options->slow, "a rank that takes longer: 3:1.5 (repeatable)")->type_name("RANK:FACTOR");
  command->add_option("--seed", options->seed, "of the jitter")->capture_default_str()->needs(jitter);
  command->callback([options] { simulate_command(*options); });
}

void add_calibrate(CLI::App& app) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command = app.add_subcommand("calibrate", "measure this machine (under two minutes), for simulate and plan --cluster this");
  command->add_option("--out", options->out, "store the measurements in this file; else where \"this\" is looked for")->type_name("FILE");
  command->add_option("--scratch", options->scratch, "a folder on the disk to measure")->type_name("FOLDER")->capture_default_str();
  std::map<std::string, config::Device> devices;
  for (const auto device : {config::Device::cpu, config::Device::cuda, config::Device::automatic})
    devices.emplace(config::name_of(device), device);
  command->add_option("--device", options->device, "cpu, cuda, or auto: the GPU where there is one")
      ->transform(CLI::CheckedTransformer(devices));
  command->add_flag("--cores", options->cores,
                    "only print the round trip between two cores and the instructions that are used, and store nothing");
  add_json(*command, options->json);
  command->callback([options] { calibrate_command(*options); });
}

void add_explain(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("explain", "every setting with its value and where it came from");
  add_run_options(*command, *options);
  add_json(*command, options->json);
  command->callback([options] { explain_command(*options); });
}

void add_eval(CLI::App& app) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* command = app.add_subcommand("eval", "loss and perplexity of a run's newest checkpoint or a model folder over data.valid");
  command->add_option("model", options->run.file, "run file, run folder, checkpoint or Hugging Face folder")->required();
  add_set(*command, options->run);
  add_deepspeed(*command, options->run);
  add_ranks(*command, options->run);
  add_processes(*command, options->processes);
  command->add_option("--data", options->data, "text or tokens to evaluate on, instead of data.valid")->type_name("FILE");
  command->add_option("--batches", options->batches, "evaluate on this many batches of data.valid only; else on all of it")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  add_json(*command, options->run.json);
  command->callback([options] { eval_command(*options); });
}

void add_generate(CLI::App& app) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = app.add_subcommand("generate", "text from a run's newest checkpoint or a model folder, as it is made");
  command->add_option("model", options->run.file, "run file, run folder, checkpoint or Hugging Face folder")->required();
  add_set(*command, options->run);
  command->add_option("--ranks", options->run.ranks, "ranks on this machine, as threads of one process; as many as the strategy has")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
  add_processes(*command, options->processes);
  CLI::Option* prompt = command->add_option("--prompt", options->prompt, "text to continue");
  command->add_option("--prompt-ids", options->prompt_ids, "token ids to continue, instead of a text; ids are printed")
      ->excludes(prompt)
      ->delimiter(',')
      ->check(not_negative());
  command->add_option("--tokens", options->tokens, "how many tokens to make")->check(CLI::Range(1, 1'000'000))->capture_default_str();
  command->add_option("--temperature", options->temperature, "0: the likeliest token always")
      ->check(number(0.0, 100.0))
      ->capture_default_str();
  command->add_option("--top-k", options->top_k, "draw from the k likeliest only; 0: all")->check(not_negative())->capture_default_str();
  command->add_option("--top-p", options->top_p, "draw from the likeliest that make up this share")
      ->check(number(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "of the draws; the run's own unless given")->check(not_negative());
  command->add_flag("--ignore-end", options->ignore_end, "go on behind the token that ends a text");
  add_json(*command, options->run.json);
  command->callback([options] { generate_command(*options); });
}

void add_model_files(CLI::App& app) {
  const auto add = [&](const char* name, const char* description, const char* from, void (*run)(const ModelFileOptions&)) {
    auto options = std::make_shared<ModelFileOptions>();
    CLI::App* command = app.add_subcommand(name, description);
    command->add_option("from", options->run.file, from)->required();
    command->add_option("to", options->to, "a new folder, or an empty one")->required();
    add_set(*command, options->run);
    command->add_option("--dtype", options->dtype, "f32, bf16 or fp16; as stored unless given")
        ->check(CLI::IsMember({"f32", "bf16", "fp16"}));
    command->add_option("--max-shard", options->max_shard, "split larger weights over files of this size")->capture_default_str();
    add_json(*command, options->run.json);
    command->callback([options, run] { run(*options); });
  };
  add("import", "check a Hugging Face folder and write it as one that training starts from", "a folder with config.json and safetensors",
      import_command);
  add("export", "write a trained model as a Hugging Face folder", "run file, run folder, checkpoint or model folder", export_command);
}

void add_data(CLI::App& app) {
  auto options = std::make_shared<DataOptions>();
  CLI::App* command = app.add_subcommand("data", "make token files of text, to train on");
  command->add_option("text", options->inputs, "text files, folders or patterns; *.jsonl holds one object a line")->required();
  command->add_option("--out", options->out, "name of the result: shards/train becomes shards/train.bin")->required()->type_name("NAME");
  command->add_option("--tokenizer", options->tokenizer, "bytes, a tokenizer.json, a SentencePiece .model, or a model folder")
      ->type_name("FILE")
      ->capture_default_str();
  command->add_option("--format", options->format, "llmc, nanogpt (no header) or megatron (.bin and .idx)")
      ->check(CLI::IsMember({"llmc", "nanogpt", "megatron"}))
      ->capture_default_str();
  command->add_option("--documents", options->documents, "what a document is in plain text: file, line or paragraph")
      ->check(CLI::IsMember({"file", "line", "paragraph"}))
      ->capture_default_str();
  command->add_option("--field", options->field, "of *.jsonl: the member that holds the text")->capture_default_str();
  command->add_option("--end-token", options->end_token, "put after each document: auto (the tokenizer's), none, a token or an id")
      ->capture_default_str();
  command->add_option("--shard-tokens", options->shard_tokens, "begin a new file after so many tokens; 0: one file")
      ->check(not_negative())
      ->capture_default_str();
  command->add_flag("--force", options->force, "replace files of the same name");
  add_json(*command, options->json);
  command->callback([options] { data_command(*options); });
}

void add_inspect(CLI::App& app) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand("inspect", "a plan, a checkpoint, a model file, a token file or a tokenizer in words");
  command->add_option("path", options->path, "what to look at")->required();
  command->add_option("--diff", options->other, "with a plan: another plan to compare it with")->type_name("FILE");
  add_json(*command, options->json);
  command->callback([options] { inspect_command(*options); });
}

void add_helpers(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  CLI::App* completion = app.add_subcommand("completion", "print a completion script: source <(plimsoll completion bash)");
  completion->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->callback([shell, &app] { fmt::print("{}", completion_script(app, *shell)); });
  CLI::App* manual = app.add_subcommand("manual", "print the manual page: plimsoll manual | man -l -");
  manual->callback([&app] { fmt::print("{}", manual_page(app)); });
}

// CLI11 says only that a subcommand is required when the one that was given does not exist.
std::string unknown_command(const CLI::App& app, const std::string& found) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  const std::string_view meant = base::nearest_name(found, std::vector<std::string_view>(names.begin(), names.end()));
  return fmt::format("found the unknown command \"{}\",{} expected one of {}", found,
                     meant.empty() ? "" : fmt::format(" did you mean \"{}\"?", meant), fmt::join(names, ", "));
}

std::string failure_text(const CLI::App* app, const CLI::Error& error) {
  const std::vector<std::string> left = app->remaining();
  const bool unknown = app->get_subcommands().empty() && !left.empty() && !left.front().starts_with('-');
  if (unknown) return fmt::format("plimsoll: {}; see plimsoll --help\n", unknown_command(*app, left.front()));
  if (!app->get_subcommands().empty() && error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    const CLI::App& command = *app->get_subcommands().front();
    const std::vector<std::string> extra = command.remaining();
    const auto option =
        std::find_if(extra.begin(), extra.end(), [](const std::string& word) { return word.size() > 1 && word.starts_with('-'); });
    if (option != extra.end())
      return fmt::format("plimsoll: {}; see plimsoll {} --help\n", unknown_option(command, *option), command.get_name());
  }
  return fmt::format("plimsoll: {}; see plimsoll --help\n", error.what());
}

std::string version_text(bool verbose) {
  std::string text = fmt::format("plimsoll {}", PLIMSOLL_VERSION);
  if (verbose) text += fmt::format("\nprocessor: {}", base::to_string(base::processor()));
  return text;
}

}  // namespace

std::unique_ptr<CLI::App> make_app() {
  auto app = std::make_unique<CLI::App>(
      "Plimsoll works out how a model can be trained on the machine at hand, proves that it fits, and trains it.", "plimsoll");
  auto verbose = std::make_shared<bool>(false);
  CLI::Option* details = app->add_flag("--verbose", *verbose, "with --version: also the processor and the instruction set in use");
  details->needs(app->set_version_flag("--version", [verbose] { return version_text(*verbose); }));
  app->require_subcommand(1);
  app->failure_message(failure_text);
  app->get_formatter()->column_width(34);
  app->footer("Exit codes: 0 done, 2 bad input, 3 does not fit or is not legal, 4 a peer or device was lost, 1 anything else.");
  add_train(*app);
  add_plan(*app);
  add_simulate(*app);
  add_calibrate(*app);
  add_explain(*app);
  add_eval(*app);
  add_generate(*app);
  add_model_files(*app);
  add_data(*app);
  add_inspect(*app);
  add_helpers(*app);
  return app;
}

}  // namespace plimsoll::cli
