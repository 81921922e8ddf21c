// The run file: read, checked, explained, written back. Errors are bad_input with file, line, column, what was found
// and what was expected; several of them come together, one a line.
//
//   config::Run run = config::load_run("run.json", {"steps=10", "optimizer.lr=1e-3"});
//   fmt::print("{}", config::explain(run));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "config/run.h"

namespace plimsoll::config {

// `overrides` are the arguments of --set: "a.b=c".
Run load_run(const std::string& path, const std::vector<std::string>& overrides = {});
// `deepspeed`: a DeepSpeed file beside the run file; its keys may also stand in the run file itself.
struct NamedText {
  std::string name;
  std::string text;
};
// What a run from there is called.
inline constexpr std::string_view kStandardInput = "standard input";
// `more_families` are known by their names beside those of the table.
Run parse_run(std::string_view text, std::string_view name, const std::vector<std::string>& overrides = {}, const NamedText& deepspeed = {},
              const std::vector<model::Family>& more_families = {});

// When the file gives "model": {"path": DIR}, config does not read the directory: the caller does, and hands the model
// in. The file's own overrides are laid over it, and what depends on the model is derived and checked.
void resolve_model(Run& run, const model::Model& from_path);

// What a run takes from its tokenizer, which config does not read either.
struct TokenizerFacts {
  std::string name;                        // for people
  std::optional<std::int64_t> vocab = {};  // nothing: it says nothing of the model's
  std::optional<std::int32_t> end = {};    // of documents
  std::optional<std::int32_t> pad = {};
  std::optional<std::int32_t> mask = {};
};
// Fills in what neither the run file nor a model's directory says: the vocabulary, the mask and pad tokens and, where documents are kept
// apart, the one that ends them. A given vocabulary that is too small is bad input; other differences become notes of the run.
void resolve_tokenizer(Run& run, const TokenizerFacts& tokenizer);

// The setting that a name of its own or of another tool stands for ("steps", "lr", "max_steps"), in full; empty when there is none.
std::string setting_named(std::string_view name);

// Every setting that applies to the run, with its value and origin.
std::string explain(const Run& run);
base::Json explain_json(const Run& run);

// What a reader must know of the DeepSpeed keys without a counterpart, one a line below a heading; empty when there are none.
std::string deepspeed_warning(const Run& run);

// Settings that were given but that this run has no use for, in one paragraph; empty when there are none.
std::string idle_settings(const Run& run);

// The resolved run file: every setting spelled out; parsing it gives an equal run.
base::Json to_json(const Run& run);

// The page docs/run-file.md, made from the table of fields; a test keeps the two equal.
std::string reference_page();
// docs/deepspeed.md, likewise.
std::string deepspeed_page();

}  // namespace plimsoll::config
