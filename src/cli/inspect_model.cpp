#include "cli/inspect_model.h"

#include <array>
#include <cstring>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "families/families.h"
#include "formats/hf_directory.h"
#include "formats/safetensors_set.h"

namespace plimsoll::cli {

namespace {

using base::Bytes;
using base::Json;

void print_line(const Json& json) { fmt::print("{}\n", base::write_json(json)); }

// ---- tensors

struct Tensors {
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
  std::map<std::string, std::int64_t> by_dtype;  // elements
  Json list = Json::array();
  std::string text;

  void add(const std::string& name, const std::string& dtype, const std::vector<std::int64_t>& shape, std::int64_t size) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    elements += count;
    bytes += size;
    by_dtype[dtype] += count;
    Json extents = Json::array();
    for (const std::int64_t extent : shape) extents.push(Json(extent));
    list.push(Json::object({{"name", name}, {"dtype", dtype}, {"shape", std::move(extents)}}));
    text += fmt::format("  {:<56} {}[{}]\n", name, dtype, fmt::join(shape, ", "));
  }

  std::string dtypes() const {
    std::vector<std::string> names;
    for (const auto& [name, count] : by_dtype) names.push_back(name);
    return fmt::format("{}", fmt::join(names, ", "));
  }
};

Tensors tensors_of(const formats::SafetensorsSet& set) {
  Tensors tensors;
  for (const std::string_view name : set.names()) {
    const formats::TensorView& tensor = set.at(name);
    tensors.add(tensor.name, std::string(formats::name_of(tensor.dtype)), tensor.shape, formats::bytes_of(tensor));
  }
  return tensors;
}

// ---- a Hugging Face folder

Json model_json(const model::Model& model) {
  return Json::object({{"family", model.family->name},
                       {"layers", model.layers},
                       {"width", model.width},
                       {"heads", model.heads},
                       {"kv_heads", model.kv_heads},
                       {"head_dim", model.head_dim},
                       {"ffn", model.ffn},
                       {"context", model.context},
                       {"vocab", model.vocab},
                       {"tied", model.tied}});
}

void inspect_model_folder(io::FileSystem& file_system, const io::Path& path, const InspectOptions& options) {
  const formats::HfDirectory folder = formats::HfDirectory::open(file_system, path);
  const model::Model& model = folder.model();
  const Tensors tensors = tensors_of(folder.weights());
  std::vector<std::string> tokenizers;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"}) {
    if (file_system.status(path / name)) tokenizers.emplace_back(name);
  }
  if (options.json) {
    Json absent = Json::array();
    for (const std::string& name : folder.absent()) absent.push(Json(name));
    Json found = Json::array();
    for (const std::string& name : tokenizers) found.push(Json(name));
    print_line(Json::object({{"kind", "model"},
                             {"model", model_json(model)},
                             {"parameters", families::parameter_count(model)},
                             {"files", static_cast<std::int64_t>(folder.weights().files().size())},
                             {"bytes", tensors.bytes},
                             {"dtypes", tensors.dtypes()},
                             {"tokenizer", std::move(found)},
                             {"absent", std::move(absent)},
                             {"tensors", tensors.list}}));
    return;
  }
  fmt::print("{}: a Hugging Face folder, {} of {} parameters\n", path.string(), model.family->name, families::parameter_count(model));
  fmt::print("  {} layers, width {}, {} heads ({} for keys and values) of {}, ffn {}, context {}, vocabulary {}, head {}\n", model.layers,
             model.width, model.heads, model.kv_heads, model.head_dim, model.ffn, model.context, model.vocab,
             model.tied ? "tied to the embedding" : "of its own");
  fmt::print("  {} tensors in {}, {} in {} file(s)\n", tensors.list.size(), tensors.dtypes(), base::to_string(Bytes{tensors.bytes}),
             folder.weights().files().size());
  fmt::print("  tokenizer: {}\n", tokenizers.empty() ? "none" : fmt::format("{}", fmt::join(tokenizers, ", ")));
  for (const std::string& name : folder.absent()) fmt::print("  without {}: it would start from random values\n", name);
}

// ---- checkpoints

void inspect_checkpoint(io::FileSystem& file_system, const io::Path& path, const InspectOptions& options) {
  const checkpoint::Checkpoint found = checkpoint::open(file_system, path);
  checkpoint::verify(file_system, found);
  const checkpoint::Manifest& manifest = found.manifest;
  Tensors tensors;
  for (const checkpoint::TensorRecord& record : manifest.tensors) {
    tensors.add(record.name, std::string(base::name_of(record.dtype)), record.shape, record.bytes());
  }
  if (options.json) {
    print_line(Json::object({{"kind", "checkpoint"},
                             {"step", manifest.step},
                             {"run", manifest.identity.run},
                             {"bytes", manifest.data_bytes()},
                             {"files", static_cast<std::int64_t>(manifest.files.size())},
                             {"valid", true},
                             {"state", manifest.state},
                             {"tensors", tensors.list}}));
    return;
  }
  fmt::print("{}: a checkpoint after step {} of {}\n  {} tensors, {} in {} file(s), every block as its sum says\n{}", path.string(),
             manifest.step, manifest.identity.run, manifest.tensors.size(), base::to_string(Bytes{manifest.data_bytes()}),
             manifest.files.size(), tensors.text);
}

void inspect_checkpoints(io::FileSystem& file_system, const io::Path& folder, const InspectOptions& options) {
  Json list = Json::array();
  for (const std::int64_t step : checkpoint::list_steps(file_system, folder)) {
    const io::Path path = folder / checkpoint::step_name(step);
    Json entry = Json::object({{"path", path.string()}, {"step", step}});
    try {
      const checkpoint::Checkpoint found = checkpoint::open(file_system, path);
      checkpoint::verify(file_system, found);
      entry.set("bytes", found.manifest.data_bytes());
      entry.set("valid", true);
      if (!options.json)
        fmt::print("{}: after step {}, {}, whole\n", path.string(), step, base::to_string(Bytes{found.manifest.data_bytes()}));
    } catch (const base::Error& error) {
      entry.set("valid", false);
      entry.set("reason", error.what());
      if (!options.json) fmt::print("{}: after step {}, not valid: {}\n", path.string(), step, error.what());
    }
    list.push(std::move(entry));
  }
  if (options.json) print_line(Json::object({{"kind", "checkpoints"}, {"checkpoints", std::move(list)}}));
}

}  // namespace

bool looks_like_safetensors(io::FileSystem& file_system, const io::Path& path) {
  const std::string name = path.filename().string();
  if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) return true;
  const io::Mapping mapping = file_system.map(path);
  const std::span<const std::byte> bytes = mapping.bytes();
  std::uint64_t header = 0;
  if (bytes.size() < sizeof header + 2) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  return header >= 2 && header <= bytes.size() - sizeof header && bytes[sizeof header] == std::byte{'{'};
}

void inspect_safetensors(io::FileSystem& file_system, const InspectOptions& options) {
  const formats::SafetensorsSet set = formats::SafetensorsSet::open(file_system, options.path);
  const Tensors tensors = tensors_of(set);
  if (options.json) {
    Json metadata = Json::object();
    for (const formats::Safetensors& file : set.files()) {
      for (const auto& [key, value] : file.metadata()) metadata.set(key, value);
    }
    print_line(Json::object({{"kind", "safetensors"},
                             {"elements", tensors.elements},
                             {"bytes", tensors.bytes},
                             {"files", static_cast<std::int64_t>(set.files().size())},
                             {"metadata", std::move(metadata)},
                             {"tensors", tensors.list}}));
    return;
  }
  fmt::print("{}: {} tensors in {}, {} elements, {} in {} file(s)\n{}", options.path, tensors.list.size(), tensors.dtypes(),
             tensors.elements, base::to_string(Bytes{tensors.bytes}), set.files().size(), tensors.text);
}

void inspect_folder(io::FileSystem& file_system, const InspectOptions& options) {
  const io::Path given(options.path);
  const io::Path folder = given.has_filename() ? given : given.parent_path();
  if (file_system.status(folder / "config.json")) return inspect_model_folder(file_system, folder, options);
  if (file_system.status(folder / checkpoint::kManifestName)) return inspect_checkpoint(file_system, folder, options);
  for (const io::Path& candidate : {folder, folder / "checkpoints"}) {
    if (!checkpoint::list_steps(file_system, candidate).empty()) return inspect_checkpoints(file_system, candidate, options);
  }
  base::bad_input("{}: found a folder, expected one with config.json (a model), manifest.json (a checkpoint) or checkpoints in it",
                  options.path);
}

}  // namespace plimsoll::cli
