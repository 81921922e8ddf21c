// The writing half of hf_directory.h.
#include <array>

#include "formats/hf_config.h"
#include "formats/hf_directory.h"
#include "formats/hf_gather.h"
#include "io/files.h"

namespace plimsoll::formats {

namespace {

constexpr std::array<std::string_view, 10> kCompanions{"tokenizer.json",
                                                       "tokenizer_config.json",
                                                       "special_tokens_map.json",
                                                       "added_tokens.json",
                                                       "tokenizer.model",
                                                       "vocab.json",
                                                       "vocab.txt",
                                                       "merges.txt",
                                                       "generation_config.json",
                                                       "chat_template.jinja"};

io::Path without_slash(const io::Path& folder) { return folder.has_filename() ? folder : folder.parent_path(); }

void refuse_used_folder(io::FileSystem& file_system, const io::Path& folder) {
  const auto status = file_system.status(folder);
  if (!status) return;
  if (status->kind == io::EntryKind::directory && file_system.list(folder).empty()) return;
  base::bad_input("'{}' exists and is not an empty folder; name a new one to export to", folder.string());
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
  for (const HfTensor& tensor : names.tensors) {
    const std::span<const float> ours = provider(tensor.name);
    const std::int64_t row_elements = tensor.shape.size() == 1 ? 1 : tensor.shape[1];
    PLIMSOLL_CHECK(std::ssize(ours) == tensor.shape[0] * row_elements, "tensor {} has {} elements", tensor.name, ours.size());
    for (const HfPart& part : tensor.parts) {
      scatter_part(part, ours, row_elements, request.dtype, [&](std::int64_t offset, std::span<const std::byte> bytes) {
        writer.write(part.name, offset, bytes);
        for (const std::string& copy : part.copies) writer.write(copy, offset, bytes);
      });
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
