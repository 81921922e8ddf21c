#include "formats/hf_directory.h"

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/ranges.h>

#include "families/families.h"
#include "formats/hf_config.h"
#include "formats/hf_config_kind.h"
#include "formats/hf_gather.h"
#include "io/files.h"

namespace plimsoll::formats {

namespace {

constexpr std::size_t kNamesInMessages = 5;

std::string first_few(const std::vector<std::string>& names) {
  const std::vector<std::string> shown(names.begin(),
                                       names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kNamesInMessages)));
  const std::string text = fmt::format("{}", fmt::join(shown, ", "));
  return names.size() > shown.size() ? fmt::format("{} and {} more", text, names.size() - shown.size()) : text;
}

bool is_bare(const SafetensorsSet& weights, std::string_view prefix) {
  const std::vector<std::string_view> names = weights.names();
  return std::none_of(names.begin(), names.end(), [&](std::string_view name) { return name.starts_with(prefix); });
}

void check_part(const SafetensorsSet& weights, const HfPart& part, const TensorView& view) {
  if (view.shape != part.shape) {
    base::bad_input("'{}': tensor '{}' is {}; config.json describes a model whose one is [{}]", weights.name(), view.name, to_string(view),
                    fmt::join(part.shape, ", "));
  }
  if (!converts_from_f32(view.dtype)) {
    base::bad_input("'{}': tensor '{}' is {}; weights are read from F32, BF16, F16 or F64", weights.name(), view.name, to_string(view));
  }
}

// A configuration far larger than the files would make us list tensors by the million only to miss them all.
void check_size(const SafetensorsSet& weights, const model::Model& model) {
  std::int64_t stored = 0;
  for (const std::string_view name : weights.names()) stored += elements_of(weights.at(name));
  const std::int64_t described = families::parameter_count(model);
  if (described / 4 > stored) {
    base::bad_input("'{}' holds {} weights, but config.json describes a model of {}", weights.name(), stored, described);
  }
}

// What a tensor that is no part of a language model says about the model; empty: nothing.
std::string other_head(const std::vector<std::string>& extra) {
  struct Head {
    std::string_view begins;
    std::string_view what;
  };
  constexpr Head kHeads[] = {{"classifier.", "the head of a classifier"},
                             {"score.", "the head of a classifier"},
                             {"qa_outputs.", "a head that answers questions"},
                             {"pre_classifier.", "the head of a classifier"},
                             {"multiple_choice_head.", "a head for multiple choice"},
                             {"v_head.", "the value head of reinforcement learning"},
                             {"value_head.", "the value head of reinforcement learning"}};
  for (const Head& head : kHeads) {
    for (const std::string& name : extra) {
      if (name.starts_with(head.begins)) return std::string(head.what);
    }
  }
  return {};
}

bool equal_values(const TensorView& a, const TensorView& b) {
  if (a.shape != b.shape) return false;
  if (a.dtype == b.dtype)
    return a.data.size() == b.data.size() && (a.data.empty() || std::memcmp(a.data.data(), b.data.data(), a.data.size()) == 0);
  return converts_to_f32(a.dtype) && converts_to_f32(b.dtype) && to_f32(a) == to_f32(b);
}

// As transformers: the file about generating goes before the one about the model.
std::vector<std::int64_t> read_end_tokens(io::FileSystem& file_system, const io::Path& folder, const base::Json& config) {
  constexpr std::string_view kKey = "eos_token_id";
  const io::Path path = folder / "generation_config.json";
  base::Json generation;
  if (file_system.status(path)) generation = base::parse_json(io::read_text(file_system, path), path.string(), {.strict = true});
  const base::Json* ends = generation.is_object() ? generation.find(kKey) : nullptr;
  if (ends == nullptr) ends = config.find(kKey);
  if (ends == nullptr || ends->is_null()) return {};
  if (!ends->is_array()) return {ends->as_integer()};
  std::vector<std::int64_t> ids;
  for (const base::Json& each : ends->as_array()) ids.push_back(each.as_integer());
  return ids;
}

}  // namespace

HfDirectory HfDirectory::open(io::FileSystem& file_system, const io::Path& folder, const io::Path& weights) {
  base::Json config = read_hf_config_json(file_system, folder);
  HfDirectory directory(std::move(config), SafetensorsSet::open(file_system, weights.empty() ? folder : weights));
  directory.end_tokens_ = read_end_tokens(file_system, folder, directory.config_);
  directory.match_tensors();
  directory.check_leftovers();
  return directory;
}

HfDirectory::HfDirectory(base::Json config, SafetensorsSet weights)
    : config_(std::move(config)), model_(model_from_hf_config(config_)), weights_(std::move(weights)) {
  check_size(weights_, model_);
  names_ = hf_names(model_, is_bare(weights_, hf_files_of(model_).prefix));
}

const TensorView* HfDirectory::find_part(const HfPart& part) const {
  if (!part.instead.empty()) {
    if (const TensorView* view = weights_.find(part.instead)) return view;
  }
  if (const TensorView* view = weights_.find(part.name)) return view;
  for (const std::string& alias : part.aliases) {
    if (const TensorView* view = weights_.find(alias)) return view;
  }
  return nullptr;
}

void HfDirectory::match_tensors() {
  std::vector<std::string> missing;
  for (std::size_t index = 0; index < names_.tensors.size(); ++index) {
    const HfTensor& tensor = names_.tensors[index];
    std::size_t found = 0;
    std::vector<std::string> lacking;
    for (const HfPart& part : tensor.parts) {
      if (const TensorView* view = find_part(part)) {
        check_part(weights_, part, *view);
        ++found;
      } else {
        lacking.push_back(part.name);
      }
    }
    if (found == tensor.parts.size()) {
      present_.emplace(tensor.name, index);
    } else if (found > 0 || !tensor.optional) {
      missing.insert(missing.end(), lacking.begin(), lacking.end());
    }
  }
  if (!missing.empty()) {
    base::bad_input("'{}' lacks {} tensor(s) of the model that config.json describes: {}", weights_.name(), missing.size(),
                    first_few(missing));
  }
}

void HfDirectory::check_leftovers() const {
  std::set<std::string_view> known;
  for (const HfTensor& tensor : names_.tensors) {
    for (const HfPart& part : tensor.parts) {
      known.insert(part.name);
      if (!part.instead.empty()) known.insert(part.instead);
      known.insert(part.aliases.begin(), part.aliases.end());
      known.insert(part.copies.begin(), part.copies.end());
    }
  }
  for (const auto& [copy, original] : names_.tied) {
    const TensorView* view = weights_.find(copy);
    known.insert(copy);
    if (view && !equal_values(*view, weights_.at(original))) {
      base::bad_input(
          "'{}': tensors '{}' and '{}' differ, but config.json says that they are one; if the model has a head of its own, set "
          "\"tie_word_embeddings\" to false",
          weights_.name(), copy, original);
    }
  }
  const families::Files& files = hf_files_of(model_);
  std::vector<std::string> extra;
  for (const std::string_view name : weights_.names()) {
    const std::string_view prefix = files.prefix;
    const std::string_view inner = name.starts_with(prefix) ? name.substr(prefix.size()) : name;
    if (!known.contains(name) && !files.known_buffer(inner)) extra.emplace_back(name);
  }
  if (!extra.empty()) {
    const std::string head = other_head(extra);
    if (!head.empty()) {
      base::bad_input(
          "'{}' holds {} ({}); Plimsoll trains {} as a language model. Keep the body alone: "
          "{}.from_pretrained(FOLDER).save_pretrained(NEW), "
          "then use NEW",
          weights_.name(), head, first_few(extra), model_.family->name, files.base_class);
    }
    base::bad_input("'{}' holds {} tensor(s) that the model of config.json does not have: {}", weights_.name(), extra.size(),
                    first_few(extra));
  }
}

std::vector<HfPassenger> HfDirectory::passengers() const {
  std::vector<HfPassenger> found;
  for (const HfTensor& tensor : names_.tensors) {
    for (const HfPart& part : tensor.parts) {
      std::vector<std::string> others = part.copies;
      if (!part.instead.empty()) others.push_back(part.name);
      for (const std::string& name : others) {
        const TensorView* used = find_part(part);
        const TensorView* other = weights_.find(name);
        if (used == nullptr || other == nullptr || used == other || equal_values(*used, *other)) continue;
        check_part(weights_, part, *other);
        found.push_back({name, to_f32(*other)});
      }
    }
  }
  return found;
}

bool HfDirectory::holds(std::string_view ours) const { return present_.contains(ours); }

std::vector<std::string> HfDirectory::absent() const {
  std::vector<std::string> names;
  for (const HfTensor& tensor : names_.tensors) {
    if (!holds(tensor.name)) names.push_back(tensor.name);
  }
  return names;
}

void HfDirectory::load(std::string_view ours, std::int64_t first_row, std::span<float> out) const {
  const auto found = present_.find(ours);
  PLIMSOLL_CHECK(found != present_.end(), "tensor {} is not in {}", ours, weights_.name());
  const HfTensor& tensor = names_.tensors[found->second];
  const std::int64_t row_elements = tensor.shape.size() == 1 ? 1 : tensor.shape[1];
  PLIMSOLL_CHECK(first_row >= 0 && std::ssize(out) % row_elements == 0 && first_row + std::ssize(out) / row_elements <= tensor.shape[0],
                 "{} elements of tensor {} from row {} on", out.size(), ours, first_row);
  for (const HfPart& part : tensor.parts) {
    const TensorView& view = *find_part(part);
    gather_part(part, view, {first_row, row_elements}, out);
    if (view.file) view.file->check_unchanged();
  }
}

}  // namespace plimsoll::formats
