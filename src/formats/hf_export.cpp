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

constexpr std::array<std::string_view, 14> kCompanions{"tokenizer.json",
                                                       "tokenizer_config.json",
                                                       "special_tokens_map.json",
                                                       "added_tokens.json",
                                                       "tokenizer.model",
                                                       "spiece.model",
                                                       "sentencepiece.bpe.model",
                                                       "tekken.json",
                                                       "vocab.json",
                                                       "vocab.txt",
                                                       "merges.txt",
                                                       "generation_config.json",
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

void write_weights(io::FileSystem& file_system, const io::Path& folder, const HfExport& request, const TensorProvider& provider) {
  const HfNames names = hf_names(request.model);
  std::vector<TensorSpec> specs;
  for (const HfTensor& tensor : names.tensors) {
    for (const HfPart& part : tensor.parts) {
      specs.push_back({part.name, request.dtype, part.shape});
      for (const std::string& copy : part.copies) specs.push_back({copy, request.dtype, part.shape});
    }
  }
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
        if (rows < tensor.shape[0]) {
          part.shape[0] = rows;
          part.rows = {{.count = rows}};
        }
        scatter_part(part, ours, width, request.dtype, [&](std::int64_t offset, std::span<const std::byte> bytes) {
          offset += row * width * bits_of(request.dtype) / 8;
          writer.write(part.name, offset, bytes);
          for (const std::string& copy : part.copies) writer.write(copy, offset, bytes);
        });
      }
    }
  }
  writer.finish();
}

void copy_companions(io::FileSystem& file_system, const io::Path& from, const io::Path& to) {
  if (from.empty()) return;
  for (const std::string_view name : kCompanions) {
    if (!file_system.status(from / name)) continue;
    io::replace_file(file_system, to / name, io::as_bytes(io::read_text(file_system, from / name)));
  }
}

}  // namespace

void export_hf(io::FileSystem& file_system, const io::Path& folder, const HfExport& request, const TensorProvider& provider) {
  const io::Path target = without_slash(folder);
  refuse_used_folder(file_system, target);
  const base::Json config = hf_config_from_model(request.model, request.config, request.dtype);
  const io::Path parent = target.parent_path().empty() ? io::Path(".") : target.parent_path();
  io::make_directories(file_system, parent);
  io::Path temporary = target;
  temporary += ".tmp";
  io::remove_tree(file_system, temporary);  // left by a crash
  try {
    file_system.make_directory(temporary);
    write_weights(file_system, temporary, request, provider);
    copy_companions(file_system, request.companions, temporary);
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
