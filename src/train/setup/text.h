// What the text of a run is read with: its tokenizer, what follows from it for the model, and the files that keep both with the run.
//
// A run's folder holds them in `model/`: the tokenizer as transformers reads it and, of a run that began from a model folder, its
// configuration. So a run can be moved, and used where the files that it was trained with are not.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/run.h"
#include "formats/hf_directory.h"
#include "formats/tokenizer/tokenizer.h"
#include "io/file_system.h"

namespace plimsoll::train {

// Where a run's folder keeps them.
io::Path kept_folder(const io::Path& run_folder);

// Says in the run which tokenizer it has, where that is a model folder's own, and takes from it what the run leaves open.
void resolve_tokenizer(io::FileSystem& file_system, config::Run& run);

// The run's tokenizer. Bad input when the model's vocabulary is too small for it.
std::shared_ptr<const formats::tokenizer::Tokenizer> open_tokenizer(io::FileSystem& file_system, const config::Run& run);

// Whether some of these files are text, so that the tokenizer matters. What cannot be read is no text.
bool reads_text(io::FileSystem& file_system, const std::vector<std::string>& data);

// What goes along with a model of this run: the tokenizer's files, and those of the folder that the model came from. Of the tokenizer there
// is nothing where the run read token files and names none.
struct ModelFiles {
  base::Json config = {};  // of the model's folder; null: it came from none
  formats::HfCompanions companions = {};
  formats::HfEnds ends = {};  // as the tokenizer says
  std::vector<formats::HfPassenger> passengers = {};
};

// `kept`: the folder in which the run kept them, if it did.
ModelFiles model_files(io::FileSystem& file_system, const config::Run& run, const io::Path& kept);

// Writes them to the run's folder.
void keep_model_files(io::FileSystem& file_system, const config::Run& run);

}  // namespace plimsoll::train
