// The writing half of hf_directory.h.
#include <algorithm>
#include <array>
#include <cmath>

#include "formats/hf_config.h"
#include "formats/hf_directory.h"
#include "formats/hf_gather.h"
#include "io/files.h"

namespace plimsoll::formats {

namespace {

constexpr std::array<std::string_view, 15> kCompanions{"tokenizer.json",
                                                       "tokenizer_config.json",
                                                       "special_tokens_map.json",
                                                       "added_tokens.json",
                                                       "tokenizer.model",
                                                       "spiece.model",
                                                       "sentencepiece.bpe.model",
                                                       "sentencepiece.model",
                                                       "tekken.json",
                                                       "vocab.json",
                                                       "vocab.txt",
                                                       "merges.txt",
                                                       kGenerationConfig,
                                                       "chat_template.jinja",
                                                       "chat_template.json"};

io::Path without_slash(const io::Path& folder) { return folder.has_filename() ? folder : folder.parent_path(); }

void refuse_used_folder(io::FileSystem& file_system, const io::Path& folder) {
  if (folder.empty()) base::bad_input("found an empty name for the folder to write; expected one that is new, or an empty folder's");
  const auto status = file_system.status(folder);
  if (!status) return;
  if (status->kind == io::EntryKind::directory && file_system.list(folder).empty()) return;
  base::bad_input("'{}' exists and is not an empty folder; name a new one to export to", folder.string());
}

constexpr std::int64_t kStaged = std::int64_t{1} << 22;  // elements of a tensor that need not be whole on its way

// A weight that is finite here and infinite there would be found out by whoever loads the model, long after.
void refuse_overflow(const std::string& name, std::span<const float> values, FileDType dtype) {
  if (dtype != FileDType::f16) return;
  constexpr float kFirstInfinite = 65520.0f;  // 65504 is the largest f16; from here on rounding leads beyond it
  const auto found =
      std::find_if(values.begin(), values.end(), [](float value) { return std::isfinite(value) && std::fabs(value) >= kFirstInfinite; });
  if (found == values.end()) return;
  base::bad_input("'{}' holds {}, and fp16 nothing beyond 65504; choose f32 or bf16 (--dtype)", name, *found);
}

// Row by row the same: such a one may be larger than memory.
bool is_one_of_theirs(const HfTensor& tensor) {
  if (tensor.parts.size() != 1 || tensor.parts[0].transposed || tensor.parts[0].rows.size() != 1) return false;
  const RowRun& run = tensor.parts[0].rows[0];
  return run.ours == 0 && run.theirs == 0 && run.step == 1 && run.count == tensor.shape[0] && tensor.parts[0].shape[0] == run.count;
}

// The names under which a tensor of ours is written, now that others stand under some.
std::vector<std::string> names_for(const HfPart& part, const std::vector<HfPassenger>& passengers) {
  std::vector<std::string> names{part.name};
  names.insert(names.end(), part.copies.begin(), part.copies.end());
  const std::size_t before = names.size();
  std::erase_if(names, [&](const std::string& name) {
    return std::any_of(passengers.begin(), passengers.end(), [&](const HfPassenger& passenger) { return passenger.name == name; });
  });
  if (names.size() < before && !part.instead.empty()) names.push_back(part.instead);
  return names;
}

void write_weights(io::FileSystem& file_system, const io::Path& folder, const HfExport& request, const TensorProvider& provider) {
  const HfNames names = hf_names(request.model);
  std::vector<TensorSpec> specs;
  for (const HfTensor& tensor : names.tensors) {
    for (const HfPart& part : tensor.parts) {
      for (const std::string& name : names_for(part, request.passengers)) specs.push_back({name, request.dtype, part.shape});
    }
  }
  for (const HfPassenger& passenger : request.passengers)
    specs.push_back({passenger.name, request.dtype, {static_cast<std::int64_t>(passenger.values.size())}});
  SafetensorsSetWriter writer(file_system, folder, specs, {.max_bytes = request.max_shard_bytes});
  std::vector<float> ours;
  for (const HfTensor& tensor : names.tensors) {
    const std::int64_t width = tensor.shape.size() == 1 ? 1 : tensor.shape[1];
    const std::int64_t at_once = is_one_of_theirs(tensor) ? std::max<std::int64_t>(1, kStaged / width) : tensor.shape[0];
    for (std::int64_t row = 0; row < tensor.shape[0]; row += at_once) {
      const std::int64_t rows = std::min(at_once, tensor.shape[0] - row);
      ours.resize(static_cast<std::size_t>(rows * width));
      provider(tensor.name, row, ours);
      refuse_overflow(tensor.name, ours, request.dtype);
      for (HfPart part : tensor.parts) {
        const std::vector<std::string> written = names_for(part, request.passengers);
        if (rows < tensor.shape[0]) {
          part.shape[0] = rows;
          part.rows = {{.count = rows}};
        }
        scatter_part(part, ours, width, request.dtype, [&](std::int64_t offset, std::span<const std::byte> bytes) {
          offset += row * width * bits_of(request.dtype) / 8;
          for (const std::string& name : written) writer.write(name, offset, bytes);
        });
      }
    }
  }
  for (const HfPassenger& passenger : request.passengers) {
    refuse_overflow(passenger.name, passenger.values, request.dtype);
    std::vector<std::byte> bytes(passenger.values.size() * static_cast<std::size_t>(bits_of(request.dtype) / 8));
    write_f32(request.dtype, passenger.values, bytes);
    writer.write(passenger.name, 0, bytes);
  }
  writer.finish();
}

}  // namespace

HfCompanions read_companions(io::FileSystem& file_system, const io::Path& folder) {
  HfCompanions files;
  for (const std::string_view name : kCompanions) {
    if (const io::Path path = folder / name; file_system.status(path)) files.emplace_back(name, io::read_text(file_system, path));
  }
  return files;
}

void export_hf(io::FileSystem& file_system, const io::Path& folder, const HfExport& request, const TensorProvider& provider) {
  const io::Path target = without_slash(folder);
  refuse_used_folder(file_system, target);
  const base::Json config = hf_config_from_model(request.model, request.config, request.dtype, request.ends);
  const io::Path parent = target.parent_path().empty() ? io::Path(".") : target.parent_path();
  io::make_directories(file_system, parent);
  io::Path temporary = target;
  temporary += ".tmp";
  io::remove_tree(file_system, temporary);  // left by a crash
  try {
    file_system.make_directory(temporary);
    write_weights(file_system, temporary, request, provider);
    for (const auto& [name, content] : request.companions) io::replace_file(file_system, temporary / name, io::as_bytes(content));
    write_hf_config(file_system, temporary, config);
    file_system.sync_directory(temporary);
    file_system.rename(temporary, target);
  } catch (const base::Error&) {
    try {
      io::remove_tree(file_system, temporary);
    } catch (const base::Error&) {  // the first error is the one to tell
    }
    throw;
  }
  file_system.sync_directory(parent);
}

}  // namespace plimsoll::formats
