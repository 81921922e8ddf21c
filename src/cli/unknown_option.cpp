#include "cli/unknown_option.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "config/config.h"

namespace plimsoll::cli {

namespace {

struct Meant {
  std::string_view command;
  std::string_view name;  // without dashes, words joined by '-'
  std::string_view instead;
};

constexpr Meant kMeant[] = {
    {"generate", "max", "--tokens"},
    {"generate", "max-tokens", "--tokens"},
    {"generate", "max-new-tokens", "--tokens"},
    {"generate", "max-length", "--tokens"},
    {"generate", "max-len", "--tokens"},
    {"generate", "length", "--tokens"},
    {"generate", "num-tokens", "--tokens"},
    {"generate", "n-tokens", "--tokens"},
    {"generate", "n-predict", "--tokens"},
    {"generate", "new-tokens", "--tokens"},
    {"generate", "count", "--tokens"},
    {"generate", "n", "--tokens"},
    {"generate", "temp", "--temperature"},
    {"generate", "t", "--temperature"},
    {"generate", "do-sample", "--temperature 0.8 (0, the default, takes the likeliest token)"},
    {"generate", "sample", "--temperature 0.8 (0, the default, takes the likeliest token)"},
    {"generate", "k", "--top-k"},
    {"generate", "topk", "--top-k"},
    {"generate", "p", "--prompt, or --top-p"},
    {"generate", "topp", "--top-p"},
    {"generate", "nucleus", "--top-p"},
    {"generate", "text", "--prompt"},
    {"generate", "input", "--prompt"},
    {"generate", "start", "--prompt"},
    {"generate", "random-seed", "--seed"},
    {"generate", "ignore-eos", "--ignore-end"},
    {"train", "np", "--ranks"},
    {"train", "n", "--ranks"},
    {"train", "nproc", "--ranks"},
    {"train", "nproc-per-node", "--ranks"},
    {"train", "num-processes", "--ranks"},
    {"train", "num-gpus", "--ranks"},
    {"train", "gpus", "--ranks"},
    {"train", "world-size", "--ranks"},
    {"train", "deepspeed-config", "--deepspeed"},
    {"train", "overwrite", "--fresh"},
    {"train", "overwrite-output-dir", "--fresh"},
    {"train", "restart", "--fresh"},
    {"train", "from-scratch", "--fresh"},
    {"train", "resume", "no option: a run resumes from its newest checkpoint by itself (--fresh starts over)"},
    {"train", "resume-from-checkpoint", "no option: a run resumes from its newest checkpoint by itself (--fresh starts over)"},
    {"train", "continue", "no option: a run resumes from its newest checkpoint by itself (--fresh starts over)"},
    {"train", "profile", "--trace FILE"},
    {"eval", "limit", "--batches"},
    {"eval", "max-batches", "--batches"},
    {"eval", "eval-iters", "--batches"},
    {"eval", "valid", "--data"},
    {"eval", "input", "--data"},
    {"eval", "dataset", "--data"},
    {"data", "output", "--out"},
    {"data", "o", "--out"},
    {"data", "output-prefix", "--out"},
    {"data", "vocab", "--tokenizer"},
    {"data", "tokenizer-model", "--tokenizer"},
    {"data", "tokenizer-type", "--tokenizer"},
    {"data", "json-keys", "--field"},
    {"data", "json-key", "--field"},
    {"data", "text-column", "--field"},
    {"data", "append-eod", "--end-token auto (the default)"},
    {"data", "eos", "--end-token"},
    {"data", "overwrite", "--force"},
    {"export", "precision", "--dtype"},
    {"export", "torch-dtype", "--dtype"},
    {"export", "max-shard-size", "--max-shard"},
    {"plan", "output", "--out"},
    {"plan", "o", "--out"},
};

std::string with(std::string text, char from, char to) {
  std::replace(text.begin(), text.end(), from, to);
  return text;
}

bool has_option(const CLI::App& command, const std::string& name) { return command.get_option_no_throw(name) != nullptr; }

std::string meant_by(const CLI::App& command, const std::string& option) {
  std::string name = option.substr(std::min(option.find_first_not_of('-'), option.size()));
  name = name.substr(0, name.find('='));
  const std::string dashed = with(name, '_', '-');
  for (const Meant& meant : kMeant) {
    if (meant.command == command.get_name() && meant.name == dashed) return std::string(meant.instead);
  }
  if (has_option(command, "--" + dashed)) return "--" + dashed;
  if (has_option(command, "--set")) {
    const std::string key = config::setting_named(with(name, '-', '_'));
    if (!key.empty()) return fmt::format("--set {}=VALUE", key);
  }
  std::vector<std::string> names;
  for (const CLI::Option* known : command.get_options()) {
    if (!known->get_lnames().empty()) names.push_back(known->get_lnames().front());
  }
  const std::string_view near = base::nearest_name(dashed, std::vector<std::string_view>(names.begin(), names.end()));
  return near.empty() ? "" : fmt::format("--{}", near);
}

}  // namespace

std::string unknown_option(const CLI::App& command, const std::string& option) {
  const std::string meant = meant_by(command, option);
  return fmt::format("found the unknown option {}{}", option, meant.empty() ? "" : fmt::format(", expected {}", meant));
}

}  // namespace plimsoll::cli
