// The documentation page of the run file, made from the table of fields.
#include <fmt/format.h>

#include "config/config.h"
#include "config/fields.h"
#include "families/families.h"

namespace plimsoll::config {

namespace {

constexpr std::string_view kIntroduction = R"(# The run file

A run file says what to train, on what, and how. It is JSON; comments (`//`, `#`, `/* */`) and trailing commas are welcome. Every key has
a default, so `{}` is a run. Unknown keys are errors that name the nearest key; `plimsoll explain RUN.json` prints every setting with its
value and where it came from.

```jsonc
{
  "model": "gpt2",  // or {"preset": "gpt2", "layers": 6}, {"family": "llama", "width": 512, ...}, {"path": "hf_dir", "dropout": 0.1}
  "data": {"train": "corpus.txt", "valid": "valid.txt"},
  "batch": {"global": 32, "micro": 4, "sequence": 256},
  "optimizer": {"lr": 3e-4},
  "lr_schedule": {"type": "cosine", "warmup": 100, "min_ratio": 0.1},
  "strategy": {"data": 2, "zero": 1},  // or "auto"
  "steps": 1000,
}
```

`--set KEY=VALUE` overrides any key: `--set steps=10 --set model.layers=2 --set 'optimizer.betas=[0.9, 0.99]' --set strategy=auto`. The value
is JSON, or a bare word for a text. Relative paths start at the working directory. `plimsoll train -` reads the run from standard input.

- `model` is a preset's name, or an object with one of `preset`, `family` and `path`, and the keys to change. Beside a `path` only the
  dropout rates can be changed: the directory says the rest. `dropout` sets all the rates of the family that are not given on their own. A
  key that the family has no use for is accepted only with its default value.
- `data.train` and `data.valid` are a file, a folder (all files in it and below it, by path), a pattern with `*`, or an array of these, read in
  that order.
- What the run leaves open comes from its tokenizer (`data.tokenizer`, or a model folder's own): `model.vocab`, `model.pad_token`,
  `mlm.mask_token` and, with `data.mask_documents`, `data.document_end`. A `tokenizer_config.json` beside the tokenizer says which tokens these
  are; otherwise they are known by their usual names, such as `[MASK]` and `<pad>`. If the run file gives other values, these count and the
  run says so; a vocabulary that is too small for the tokenizer is refused.
- `batch.global` must be a multiple of `batch.micro` x `strategy.data`; of `batch.micro` x every stage's data degree where stages have their own.
- `strategy` is an object, or `"auto"`: the planner finds the best one that fits `limits` ([planning.md](planning.md)).
- A stage in `strategy.stages` is a number of blocks, or `{"blocks": 4, "data": 2, "tensor": 1}` with its own degrees; degrees that are
  absent are the strategy's.
- Amounts of memory take KB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (powers of 1024), or a count of bytes.
)";

constexpr std::string_view kEnding = R"(
*This page is made from the table of fields in `src/config`; `PLIMSOLL_UPDATE=1` in the environment of the test `config_reference` rewrites it.*
)";

std::string inline_code(const base::Json& value) { return fmt::format("`{}`", base::write_json(value)); }

// One value where the families agree, else one for each.
std::string default_of(const Field& field) {
  if (field.key == "model.family") return inline_code(field.write(Run{}));
  std::vector<std::pair<std::string, base::Json>> values;
  for (const model::Family family : families::all_families()) {
    if (!includes(field, *family)) continue;
    Run run;
    run.model = families::defaults(family);
    values.emplace_back(family->name, field.write(run));
  }
  bool same = true;
  for (const auto& [name, value] : values) same = same && value == values.front().second;
  if (same) return values.front().second.is_null() ? "-" : inline_code(values.front().second);
  std::string text;
  for (const auto& [name, value] : values) text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", name, inline_code(value));
  return text;
}

std::string families_note(const Field& field) {
  std::string names;
  bool all = true;
  for (const model::Family family : families::all_families()) {
    const bool one = includes(field, *family);
    if (one) names += fmt::format("{}{}", names.empty() ? "" : ", ", family->name);
    all = all && one;
  }
  return all ? std::string() : fmt::format(" Only {}.", names);
}

std::string group_of(const Field& field) {
  const std::size_t dot = field.key.find('.');
  return dot == std::string::npos ? std::string() : field.key.substr(0, dot);
}

}  // namespace

std::string reference_page() {
  std::string page(kIntroduction);
  std::string group = "?";
  for (const Field& field : fields()) {
    if (group_of(field) != group) {
      group = group_of(field);
      page += fmt::format("\n## {}\n\n| key | takes | default | meaning |\n|---|---|---|---|\n", group.empty() ? "the run" : group);
    }
    const std::string fallback = field.derived.empty() ? default_of(field) : field.derived;
    page += fmt::format("| `{}` | {} | {} | {}{} |\n", field.key, field.expects, fallback, field.about, families_note(field));
  }
  page += kEnding;
  return page;
}

}  // namespace plimsoll::config
