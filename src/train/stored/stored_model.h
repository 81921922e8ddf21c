// A trained model on disk, wherever it lies: a run's newest checkpoint, one checkpoint, or a Hugging Face folder. Commands
// that only read weights (eval, generate, export, import) see no difference.
//
//   const ModelPlace place = find_model(file_system, "runs/first");
//   const StoredModel stored = StoredModel::open(file_system, place, run);
//   load_weights(stored, session);
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/load.h"
#include "config/run.h"
#include "formats/hf_directory.h"
#include "io/file_system.h"
#include "train/session/session.h"

namespace plimsoll::train {

// What a path names. Either a model folder, or a run file with, where the path says so, the checkpoints to look at.
struct ModelPlace {
  io::Path model_folder = {};
  io::Path run_file = {};
  io::Path checkpoints = {};  // empty: those of the run's own folder
  io::Path checkpoint = {};   // this one alone
};

// `path` is a run file, a run's folder, its checkpoints, one of them, or a Hugging Face folder; bad_input on anything else.
ModelPlace find_model(io::FileSystem& file_system, const io::Path& path);

// Where a run keeps its checkpoints.
io::Path checkpoint_folder(const config::Run& run);

class StoredModel {
 public:
  // `run` is the place's run, or one of the model in its folder. A run without a checkpoint is what its model folder
  // holds; bad_input when it has neither.
  static StoredModel open(io::FileSystem& file_system, const ModelPlace& place, const config::Run& run);

  const std::string& origin() const { return origin_; }                         // the folder that the weights are read from
  const std::vector<std::string>& passed_over() const { return passed_over_; }  // newer checkpoints, and why
  const model::Model& model() const { return model_; }
  const formats::HfDirectory* folder() const { return folder_ ? &*folder_ : nullptr; }
  const checkpoint::Checkpoint* checkpoint() const { return checkpoint_ ? &*checkpoint_ : nullptr; }

  // False for the head of a model that was saved without one.
  bool holds(std::string_view parameter) const;
  // Fills `out` with rows of the parameter of that shape from `first_row` on; bad_input when it has another shape.
  void load(const std::string& parameter, const base::Shape& shape, std::int64_t first_row, std::span<float> out) const;

 private:
  StoredModel(io::FileSystem& file_system, const model::Model& model) : file_system_(file_system), model_(model) {}
  struct InForm {
    const checkpoint::TensorRecord& record;
    const ops::FormInfo& form;
  };
  std::optional<InForm> in_form(std::string_view parameter) const;
  void load_form(const InForm& stored, const base::Shape& shape, std::int64_t first_row, std::span<float> out) const;
  // Of the checkpoint, as it is stored, from element `first` on.
  void read_tensor(const checkpoint::TensorRecord& record, std::int64_t first, std::span<float> out) const;

  io::FileSystem& file_system_;
  model::Model model_;
  std::string origin_;
  std::vector<std::string> passed_over_;
  std::optional<formats::HfDirectory> folder_;
  std::optional<checkpoint::Checkpoint> checkpoint_;
};

// Which weights these are, without reading all of them: of a checkpoint the run and the step, of a model folder a sum over some rows of
// every tensor.
std::string digest_of(const StoredModel& stored);

// Into any session of the same model; all ranks together, which must have found the same. Returns the parameters that are not stored; they
// are drawn as at the beginning of a run.
std::vector<std::string> load_weights(const StoredModel& stored, Session& session);

}  // namespace plimsoll::train
