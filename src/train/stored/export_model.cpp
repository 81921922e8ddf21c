#include "train/stored/export_model.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "families/families.h"
#include "formats/hf_config.h"
#include "graph/programs/programs.h"
#include "train/session/initialise.h"
#include "train/setup/text.h"

namespace plimsoll::train {

namespace {

// The one type of a folder's floating tensors; f32 where they have several, which holds them all.
formats::FileDType stored_dtype(const StoredModel& stored) {
  if (stored.folder() == nullptr) return formats::FileDType::f32;
  std::optional<formats::FileDType> common;
  for (const formats::Safetensors& file : stored.folder()->weights().files()) {
    for (const formats::TensorView& tensor : file.tensors()) {
      if (!formats::converts_from_f32(tensor.dtype)) continue;
      if (common && *common != tensor.dtype) return formats::FileDType::f32;
      common = tensor.dtype;
    }
  }
  return common.value_or(formats::FileDType::f32);
}

// Our parameters, some rows at a time.
class Provider {
 public:
  Provider(const StoredModel& stored, const config::Run& run)
      : stored_(stored), run_(run), graph_(graph::inference_graph(run.model, model::Training{})) {}

  void operator()(std::string_view name, std::int64_t first_row, std::span<float> out) {
    const auto found = std::find_if(graph_.parameters.begin(), graph_.parameters.end(),
                                    [&](const graph::Parameter& parameter) { return parameter.name == name; });
    PLIMSOLL_CHECK(found != graph_.parameters.end(), "the graph has no parameter {}", name);
    const base::Shape& shape = graph_.values[found->weight].type.shape;
    if (stored_.folder() == nullptr || stored_.holds(name)) return stored_.load(found->name, shape, first_row, out);
    if (first_row == 0) drawn_.emplace_back(name);
    initial_values(graph_, *found, static_cast<std::uint64_t>(run_.seed), first_row * (shape.elements() / shape[0]), out);
  }

  std::vector<std::string> drawn() const { return drawn_; }

 private:
  const StoredModel& stored_;
  const config::Run& run_;
  graph::Graph graph_;
  std::vector<std::string> drawn_;
};

}  // namespace

Exported export_model(io::FileSystem& file_system, const StoredModel& stored, const config::Run& run, const ExportRequest& request) {
  Exported exported{.dtype = request.dtype.value_or(stored_dtype(stored)),
                    .parameters = families::parameter_count(run.model),
                    .tokenizer = false,
                    .drawn = {}};
  ModelFiles files = model_files(file_system, run, request.kept);
  exported.tokenizer = std::any_of(files.companions.begin(), files.companions.end(),
                                   [](const auto& file) { return file.first != formats::kGenerationConfig; });
  const formats::HfExport to{.model = run.model,
                             .config = std::move(files.config),
                             .dtype = exported.dtype,
                             .max_shard_bytes = request.max_shard_bytes,
                             .companions = std::move(files.companions),
                             .passengers = std::move(files.passengers),
                             .ends = files.ends};
  Provider provider(stored, run);
  formats::export_hf(file_system, request.folder, to, std::ref(provider));
  exported.drawn = provider.drawn();
  return exported;
}

}  // namespace plimsoll::train
