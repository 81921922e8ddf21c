#include "train/setup/text.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "config/config.h"
#include "formats/byte_tokenizer.h"
#include "formats/file_dtype.h"
#include "formats/hf_config.h"
#include "formats/hf_config_kind.h"
#include "formats/safetensors_set.h"
#include "formats/safetensors_writer.h"
#include "formats/token_file.h"
#include "formats/tokenizer/bytes_json.h"
#include "io/files.h"

namespace plimsoll::train {

namespace {

using base::Json;
using formats::tokenizer::Tokenizer;

constexpr std::string_view kBytes = "bytes";
constexpr std::int32_t kMaskBehindBytes = formats::ByteTokenizer::kVocab;

// Bytes know no mask: where one is needed, it is the id behind them.
bool needs_mask_behind_bytes(const config::Run& run) {
  return run.model.family->masks() && (!run.given("mlm.mask_token") || run.mlm.mask_token == kMaskBehindBytes);
}

config::TokenizerFacts facts_of_bytes(const config::Run& run) {
  config::TokenizerFacts facts{.name = std::string(kBytes)};
  const bool mask = needs_mask_behind_bytes(run);
  if (run.given("data.tokenizer")) facts.vocab = kMaskBehindBytes + (mask ? 1 : 0);
  const bool room = !run.given("model.vocab") || run.model.vocab > kMaskBehindBytes;
  if (mask && room) facts.mask = kMaskBehindBytes;
  if (mask && !room) facts.vocab.reset();
  return facts;
}

// The name of a kept tokenizer, where the run's folder has one.
std::optional<std::string> kept_tokenizer(io::FileSystem& file_system, const config::Run& run) {
  const io::Path kept = kept_folder(run.out);
  if (!io::exists(file_system, kept)) return std::nullopt;
  const auto file = formats::tokenizer::tokenizer_file(file_system, kept.string());
  return file ? std::optional(file->string()) : std::nullopt;
}

// A model from a folder speaks the language of that folder's tokenizer unless the run says otherwise.
void settle_name(io::FileSystem& file_system, config::Run& run) {
  if (run.given("data.tokenizer")) {
    const bool gone = run.data.tokenizer != kBytes && !io::exists(file_system, run.data.tokenizer);
    const bool asked_for = run.origin("data.tokenizer").kind == config::OriginKind::set;
    if (const auto kept = gone && !asked_for ? kept_tokenizer(file_system, run) : std::nullopt) run.data.tokenizer = *kept;
    return;
  }
  if (run.model_path.empty()) return;
  const auto file = formats::tokenizer::tokenizer_file(file_system, run.model_path);
  if (!file) return;
  run.data.tokenizer = file->string();
  run.origins["data.tokenizer"] = {.kind = config::OriginKind::model_path, .text = fmt::format("path {}", run.model_path)};
}

// Half a tokenizer, as older folders have it, would be passed over and the text read as bytes.
void refuse_halves(io::FileSystem& file_system, const config::Run& run) {
  if (run.model_path.empty() || run.given("data.tokenizer")) return;
  for (const char* half : {"vocab.json", "vocab.txt", "merges.txt", "tekken.json"}) {
    if (!io::exists(file_system, io::Path(run.model_path) / half)) continue;
    base::bad_input("the folder has {} but no tokenizer.json; make one: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
                    half);
  }
}

constexpr std::string_view kConfig = "config.json";

// A model folder's own, which may be of a kind that is not read here: that matters to those who have text for it, and is told them then.
std::shared_ptr<const Tokenizer> if_readable(io::FileSystem& file_system, const config::Run& run) {
  try {
    return open_tokenizer(file_system, run);
  } catch (const base::Error&) {
    return nullptr;
  }
}

// ---- files that go along

bool has(const formats::HfCompanions& files, std::string_view name) {
  return std::any_of(files.begin(), files.end(), [&](const auto& file) { return file.first == name; });
}

formats::HfCompanions tokenizer_files(io::FileSystem& file_system, const io::Path& folder) {
  formats::HfCompanions files = formats::read_companions(file_system, folder);
  std::erase_if(files, [](const auto& file) { return file.first == formats::kGenerationConfig; });
  return files;
}

// What transformers must be told where nobody wrote it: which class reads the file as it is, and the tokens with a part to play.
std::string tokenizer_config(const Tokenizer& tokenizer, const config::Run& run, bool sentence_piece) {
  Json config = Json::object({{"tokenizer_class", sentence_piece ? "LlamaTokenizer" : "PreTrainedTokenizerFast"},
                              {"clean_up_tokenization_spaces", false},
                              {"model_max_length", run.model.context}});
  const formats::tokenizer::SpecialTokens& special = tokenizer.special();
  const auto set = [&](std::string_view key, const std::optional<std::int32_t>& id) {
    if (id) config.set(key, tokenizer.token(*id));
  };
  set("bos_token", special.begin);
  set("eos_token", special.end);
  set("pad_token", special.pad);
  set("mask_token", special.mask);
  set("unk_token", special.unknown);
  set("cls_token", tokenizer.token_id("[CLS]"));
  set("sep_token", tokenizer.token_id("[SEP]"));
  if (sentence_piece) {
    config.set("add_bos_token", !tokenizer.before().empty());
    config.set("add_eos_token", false);
  }
  return base::write_json(config, base::JsonLayout::pretty) + "\n";
}

// Under the names that transformers looks for, whatever the file was called.
formats::HfCompanions own_tokenizer(io::FileSystem& file_system, const io::Path& file, const Tokenizer& tokenizer, const config::Run& run) {
  formats::HfCompanions files;
  if (formats::tokenizer::has_companions(file)) {
    files = tokenizer_files(file_system, file.parent_path());
  } else {
    std::string content = io::read_text(file_system, file);
    const std::size_t first = content.find_first_not_of("\xEF\xBB\xBF \t\r\n");
    const bool json = first != std::string::npos && content[first] == '{';
    files.emplace_back(json ? "tokenizer.json" : "tokenizer.model", std::move(content));
  }
  if (!has(files, "tokenizer_config.json"))
    files.emplace_back("tokenizer_config.json", tokenizer_config(tokenizer, run, !has(files, "tokenizer.json")));
  return files;
}

formats::HfCompanions bytes_files(const config::Run& run) {
  const bool mask = run.model.family->masks() && run.mlm.mask_token == kMaskBehindBytes;
  std::string json = formats::tokenizer::bytes_json(mask);
  const auto tokenizer = formats::tokenizer::parse_tokenizer(json, "tokenizer.json");
  return {{"tokenizer_config.json", tokenizer_config(*tokenizer, run, false)}, {"tokenizer.json", std::move(json)}};
}

bool same_folder(const io::Path& a, const io::Path& b) { return (a / "").lexically_normal() == (b / "").lexically_normal(); }

formats::HfEnds ends_of(const Tokenizer& tokenizer) { return {.begin = tokenizer.special().begin, .end = tokenizer.special().end}; }

void set_ends(const formats::HfEnds& ends, Json& config) {
  if (ends.begin) config.set("bos_token_id", *ends.begin);
  if (ends.end) config.set("eos_token_id", *ends.end);
}

constexpr std::string_view kPassengers = "unused.safetensors";

std::vector<formats::HfPassenger> read_passengers(io::FileSystem& file_system, const io::Path& path) {
  if (!io::exists(file_system, path)) return {};
  std::vector<formats::HfPassenger> passengers;
  const formats::SafetensorsSet file = formats::SafetensorsSet::open(file_system, path);
  for (const std::string_view name : file.names()) passengers.push_back({std::string(name), formats::to_f32(file.at(name))});
  return passengers;
}

void write_passengers(io::FileSystem& file_system, const io::Path& path, const std::vector<formats::HfPassenger>& passengers) {
  std::vector<formats::TensorSpec> specs;
  for (const formats::HfPassenger& passenger : passengers)
    specs.push_back({passenger.name, formats::FileDType::f32, {std::ssize(passenger.values)}});
  formats::SafetensorsWriter writer(file_system, path, specs);
  for (const formats::HfPassenger& passenger : passengers) writer.write(passenger.name, std::as_bytes(std::span(passenger.values)));
  writer.finish();
}

// Of a run whose folder kept nothing: out of the files that it names.
ModelFiles named_files(io::FileSystem& file_system, const config::Run& run) {
  ModelFiles result;
  const io::Path folder = run.model_path;
  if (!folder.empty()) {
    result.config = formats::read_hf_config_json(file_system, folder);
    result.companions = formats::read_companions(file_system, folder);
    if (formats::hf_files_of(run.model).passengers) result.passengers = formats::HfDirectory::open(file_system, folder).passengers();
  }
  const bool text = run.given("data.tokenizer") || reads_text(file_system, run.data.train);
  if (run.data.document_end >= 0) result.ends.end = static_cast<std::int32_t>(run.data.document_end);
  if (run.data.tokenizer == kBytes) {
    if (folder.empty() && text) result.companions = bytes_files(run);
    return result;
  }
  const auto file = formats::tokenizer::tokenizer_file(file_system, run.data.tokenizer);
  if (!file || (!folder.empty() && same_folder(file->parent_path().empty() ? io::Path(".") : file->parent_path(), folder))) return result;
  const auto tokenizer = open_tokenizer(file_system, run);
  result.companions = own_tokenizer(file_system, *file, *tokenizer, run);
  result.ends = ends_of(*tokenizer);
  if (result.config.is_object()) set_ends(result.ends, result.config);  // those of the folder mean other tokens
  return result;
}

}  // namespace

io::Path kept_folder(const io::Path& run_folder) { return run_folder / "model"; }

bool reads_text(io::FileSystem& file_system, const std::vector<std::string>& data) {
  try {
    for (const std::string& name : data) {
      for (const io::Path& path : formats::find_data(file_system, name)) {
        const auto status = file_system.status(path);
        if (status && status->kind != io::EntryKind::directory && !formats::recognise_token_file(file_system, path)) return true;
      }
    }
  } catch (const base::Error&) {  // told when it is opened
  }
  return false;
}

void resolve_tokenizer(io::FileSystem& file_system, config::Run& run) {
  settle_name(file_system, run);
  if (run.data.tokenizer == kBytes) {
    const bool in_effect = run.given("data.tokenizer") || (run.model_path.empty() && reads_text(file_system, run.data.train));
    if (in_effect) config::resolve_tokenizer(run, facts_of_bytes(run));
    return;
  }
  std::shared_ptr<const Tokenizer> tokenizer;
  if (run.given("data.tokenizer")) {
    tokenizer = open_tokenizer(file_system, run);
  } else {
    tokenizer = if_readable(file_system, run);
    if (!tokenizer) return;
  }
  const formats::tokenizer::SpecialTokens& special = tokenizer->special();
  config::resolve_tokenizer(
      run, {.name = run.data.tokenizer, .vocab = tokenizer->vocab(), .end = special.end, .pad = special.pad, .mask = special.mask});
}

std::shared_ptr<const Tokenizer> open_tokenizer(io::FileSystem& file_system, const config::Run& run) {
  const std::string& name = run.data.tokenizer;
  try {
    if (name == kBytes) refuse_halves(file_system, run);
    auto tokenizer = formats::tokenizer::open_tokenizer(file_system, name);
    // A model may have spare rows, but not fewer than there are tokens. Bytes are checked one by one as they are read.
    const bool settled = run.given("model.vocab") || !run.model_path.empty();
    if (settled && name != kBytes && tokenizer->vocab() > run.model.vocab) {
      base::bad_input(
          "its vocabulary ({}) does not fit the model's, which has {}; use the model's own tokenizer, or set \"model.vocab\" to {}",
          tokenizer->describe(), run.model.vocab, tokenizer->vocab());
    }
    return tokenizer;
  } catch (const base::Error& error) {
    base::fail(error.kind(), "{}: \"data.tokenizer\" is \"{}\": {}", run.where("data.tokenizer"), name, error.what());
  }
}

ModelFiles model_files(io::FileSystem& file_system, const config::Run& run, const io::Path& kept) {
  if (kept.empty() || !io::exists(file_system, kept)) return named_files(file_system, run);
  ModelFiles result{.companions = formats::read_companions(file_system, kept)};
  if (run.data.document_end >= 0) result.ends.end = static_cast<std::int32_t>(run.data.document_end);
  result.passengers = read_passengers(file_system, kept / kPassengers);
  if (io::exists(file_system, kept / kConfig)) result.config = formats::read_hf_config_json(file_system, kept);
  const auto file = formats::tokenizer::tokenizer_file(file_system, kept.string());
  if (file && result.config.is_null()) {
    const formats::HfEnds ends = ends_of(*formats::tokenizer::open_tokenizer(file_system, file->string()));
    if (ends.begin) result.ends.begin = ends.begin;
    if (ends.end) result.ends.end = ends.end;
  }
  return result;
}

void keep_model_files(io::FileSystem& file_system, const config::Run& run) {
  const io::Path folder = kept_folder(run.out);
  ModelFiles files = named_files(file_system, run);
  if (files.config.is_object()) files.companions.emplace_back(kConfig, base::write_json(files.config, base::JsonLayout::pretty) + "\n");
  io::remove_tree(file_system, folder);
  if (files.companions.empty() && files.passengers.empty()) return;
  io::make_directories(file_system, folder);
  for (const auto& [name, content] : files.companions) io::replace_file(file_system, folder / name, io::as_bytes(content));
  if (!files.passengers.empty()) write_passengers(file_system, folder / kPassengers, files.passengers);
}

}  // namespace plimsoll::train
