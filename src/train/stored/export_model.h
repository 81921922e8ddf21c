// A stored model as a Hugging Face folder: what `plimsoll export` and `plimsoll import` write.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/run.h"
#include "formats/file_dtype.h"
#include "io/file_system.h"
#include "train/stored/stored_model.h"

namespace plimsoll::train {

struct ExportRequest {
  io::Path folder;                               // must not exist, or be empty
  std::optional<formats::FileDType> dtype = {};  // as the weights are stored, unless given
  std::int64_t max_shard_bytes = 5'000'000'000;
  io::Path kept = {};  // where the run kept its tokenizer (train/setup/text.h)
};

struct Exported {
  formats::FileDType dtype = formats::FileDType::f32;
  std::int64_t parameters = 0;
  bool tokenizer = false;          // goes along
  std::vector<std::string> drawn;  // parameters that were not stored, drawn as at the beginning of the run
};

// The configuration and the tokenizer of the folder that the model came from go along, with every key that we do not
// know. The folder is whole or not there.
Exported export_model(io::FileSystem& file_system, const StoredModel& stored, const config::Run& run, const ExportRequest& request);

}  // namespace plimsoll::train
