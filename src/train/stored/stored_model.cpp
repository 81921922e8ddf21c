#include "train/stored/stored_model.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "checkpoint/folder.h"
#include "collectives/agree.h"
#include "formats/file_dtype.h"
#include "io/files.h"
#include "train/session/initialise.h"
#include "train/session/low_halves.h"
#include "train/stored/weights.h"

namespace plimsoll::train {

namespace {

io::Path without_slash(const io::Path& folder) { return folder.has_filename() ? folder : folder.parent_path(); }

// The run that a folder inside it belongs to.
io::Path run_file_in(io::FileSystem& file_system, const io::Path& run_folder, const io::Path& of) {
  const io::Path path = run_folder / "run.json";
  if (!io::exists(file_system, path)) {
    base::bad_input("{}: found no {}, which says what model the checkpoint is of; expected it where plimsoll train left it", of.string(),
                    path.string());
  }
  return path;
}

io::Path parent_of(const io::Path& folder) {
  const io::Path full = folder.lexically_normal();
  return full.parent_path().empty() ? io::Path(".") : full.parent_path();
}

formats::FileDType file_dtype_of(base::DType dtype) {
  switch (dtype) {
    case base::DType::f32: return formats::FileDType::f32;
    case base::DType::bf16: return formats::FileDType::bf16;
    case base::DType::f16: return formats::FileDType::f16;
    case base::DType::u16: return formats::FileDType::u16;  // lower halves
    default: base::bad_input("a parameter is stored as {}; expected f32, bf16 or f16", base::name_of(dtype));
  }
}

}  // namespace

ModelPlace find_model(io::FileSystem& file_system, const io::Path& path) {
  const auto status = file_system.status(path);
  if (!status)
    base::bad_input("{}: No such file or folder; expected a run file, a run's folder, a checkpoint or a model folder", path.string());
  if (status->kind != io::EntryKind::directory) return {.run_file = path};
  const io::Path folder = without_slash(path);
  if (io::exists(file_system, folder / "config.json")) return {.model_folder = folder};
  if (io::exists(file_system, folder / checkpoint::kManifestName)) {
    return {.run_file = run_file_in(file_system, parent_of(parent_of(folder)), folder), .checkpoint = folder};
  }
  if (io::exists(file_system, folder / "run.json")) return {.run_file = folder / "run.json", .checkpoints = folder / "checkpoints"};
  if (!checkpoint::list_steps(file_system, folder).empty()) {
    return {.run_file = run_file_in(file_system, parent_of(folder), folder), .checkpoints = folder};
  }
  base::bad_input("{}: found neither config.json (a model folder), manifest.json (a checkpoint) nor run.json (a run's folder)",
                  path.string());
}

io::Path checkpoint_folder(const config::Run& run) { return io::Path(run.out) / "checkpoints"; }

StoredModel StoredModel::open(io::FileSystem& file_system, const ModelPlace& place, const config::Run& run) {
  StoredModel stored(file_system, run.model);
  const auto from_folder = [&](const io::Path& folder) {
    stored.folder_ = formats::HfDirectory::open(file_system, folder);
    stored.origin_ = folder.string();
  };
  const auto from_checkpoint = [&](checkpoint::Checkpoint found) {
    stored.origin_ = found.path.string();
    stored.checkpoint_ = std::move(found);
  };
  if (!place.model_folder.empty()) {
    from_folder(place.model_folder);
    return stored;
  }
  if (!place.checkpoint.empty()) {
    from_checkpoint(checkpoint::open(file_system, place.checkpoint));
    return stored;
  }
  const io::Path folder = place.checkpoints.empty() ? checkpoint_folder(run) : place.checkpoints;
  checkpoint::Search search = checkpoint::newest_valid(file_system, folder);
  if (search.found) {
    from_checkpoint(std::move(*search.found));
    stored.passed_over_ = std::move(search.problems);
  } else if (search.problems.empty() && !run.model_path.empty()) {
    from_folder(run.model_path);
  } else {
    base::bad_input("{}: found no valid checkpoint{}; train the run first (plimsoll train)", folder.string(),
                    search.problems.empty() ? "" : " (" + search.problems.front() + ")");
  }
  return stored;
}

bool StoredModel::holds(std::string_view parameter) const {
  return folder_ ? folder_->holds(parameter) : checkpoint_->manifest.find(parameter) != nullptr || in_form(parameter).has_value();
}

// A weight that was frozen may be stored in a form, under the form's name.
std::optional<StoredModel::InForm> StoredModel::in_form(std::string_view parameter) const {
  for (const ops::FormInfo& form : ops::forms()) {
    if (const auto* record = checkpoint_->manifest.find(fmt::format("{}.{}", parameter, form.name))) return InForm{*record, form};
  }
  return std::nullopt;
}

void StoredModel::load_form(const InForm& stored, const base::Shape& shape, std::int64_t first_row, std::span<float> out) const {
  const base::Shape records = ops::stored_type(stored.form, shape).shape;
  if (stored.record.dtype != base::DType::u8 || !std::ranges::equal(stored.record.shape, records.dims())) {
    base::bad_input("{}: found {} for parameter {} in {}, expected {}; the checkpoint is of another model", origin_,
                    checkpoint::describe(stored.record.dtype, stored.record.shape), stored.record.name, stored.form.name,
                    base::to_string(ops::stored_type(stored.form, shape)));
  }
  std::vector<std::uint8_t> staged(out.size() / static_cast<std::size_t>(shape[-1]) * static_cast<std::size_t>(records[-1]));
  const checkpoint::TensorTarget target{.name = stored.record.name,
                                        .dtype = base::DType::u8,
                                        .shape = stored.record.shape,
                                        .data = std::as_writable_bytes(std::span(staged)),
                                        .begin = first_row * records[-1]};
  checkpoint::load(file_system_, *checkpoint_, std::span(&target, 1), checkpoint::Unclaimed::ignore);
  ops::decode_rows(stored.form, shape[-1], staged, out);
}

void StoredModel::load(const std::string& parameter, const base::Shape& shape, std::int64_t first_row, std::span<float> out) const {
  if (folder_) return folder_->load(parameter, first_row, out);
  const checkpoint::TensorRecord* record = checkpoint_->manifest.find(parameter);
  if (record == nullptr) {
    if (const std::optional<InForm> stored = in_form(parameter)) return load_form(*stored, shape, first_row, out);
  }
  if (record == nullptr || !std::equal(record->shape.begin(), record->shape.end(), shape.dims().begin(), shape.dims().end())) {
    base::bad_input("{}: found {} for parameter {}, expected shape {}; the checkpoint is of another model", origin_,
                    record == nullptr ? "nothing" : "another shape", parameter, base::to_string(shape));
  }
  const std::int64_t first = first_row * (shape.elements() / shape[0]);
  read_tensor(*record, first, out);
  const checkpoint::TensorRecord* low = checkpoint_->manifest.find(parameter + ".low");
  const checkpoint::TensorRecord* v = checkpoint_->manifest.find(parameter + ".v");
  if (low == nullptr || v == nullptr || low->shape != record->shape || v->shape != record->shape) return;
  std::vector<float> halves(out.size());
  std::vector<float> signs(out.size());
  read_tensor(*low, first, halves);
  read_tensor(*v, first, signs);
  join_low_halves(out, halves, signs);
}

void StoredModel::read_tensor(const checkpoint::TensorRecord& record, std::int64_t first, std::span<float> out) const {
  const bool as_it_is = record.dtype == base::DType::f32;
  const std::int64_t element = base::size_of(record.dtype);
  std::vector<std::byte> staged(as_it_is ? 0 : out.size() * static_cast<std::size_t>(element));
  const checkpoint::TensorTarget target{.name = record.name,
                                        .dtype = record.dtype,
                                        .shape = record.shape,
                                        .data = as_it_is ? std::as_writable_bytes(out) : std::span<std::byte>(staged),
                                        .begin = first * element};
  checkpoint::load(file_system_, *checkpoint_, std::span(&target, 1), checkpoint::Unclaimed::ignore);
  if (!as_it_is) formats::read_f32(file_dtype_of(record.dtype), staged, 0, out);
}

std::string digest_of(const StoredModel& stored) {
  if (const checkpoint::Checkpoint* from = stored.checkpoint())
    return fmt::format("step {} of the run {} with settings {}", from->manifest.step, from->manifest.identity.run,
                       from->manifest.identity.config);
  constexpr std::int64_t kLookedAt = 8;  // rows of a tensor
  std::uint32_t sum = 0;
  std::int64_t elements = 0;
  for (const formats::HfTensor& tensor : stored.folder()->tensors()) {
    if (!stored.holds(tensor.name)) continue;
    const std::int64_t rows = tensor.shape.empty() ? 1 : tensor.shape.front();
    const base::Shape shape(tensor.shape);
    std::vector<float> row(static_cast<std::size_t>(shape.elements() / rows));
    for (std::int64_t i = 0; i < std::min(rows, kLookedAt); ++i) {
      stored.folder()->load(tensor.name, i * (rows - 1) / std::max<std::int64_t>(1, std::min(rows, kLookedAt) - 1), row);
      sum = base::crc32c({reinterpret_cast<const char*>(row.data()), row.size() * sizeof(float)}, sum);
    }
    elements += shape.elements();
  }
  return fmt::format("{} weights of digest {:08x}", elements, sum);
}

std::vector<std::string> load_weights(const StoredModel& stored, Session& session) {
  if (collectives::Group* const world = session.world())
    collectives::agree(*world, {{stored.folder() != nullptr ? "model.path" : "checkpoint", digest_of(stored)}});
  std::vector<std::string> absent;
  const graph::Graph& graph = session.graph();
  write_parameters(session, [&](const ParameterInfo& info, std::int64_t first_row, std::span<float> out) {
    if (stored.folder() == nullptr || stored.holds(info.name)) return stored.load(info.name, info.shape, first_row, out);
    if (absent.empty() || absent.back() != info.name) absent.push_back(info.name);
    const auto parameter = std::find_if(graph.parameters.begin(), graph.parameters.end(),
                                        [&](const graph::Parameter& candidate) { return candidate.name == info.name; });
    initial_values(graph, *parameter, session.seed(), first_row * (info.shape.elements() / info.shape[0]), out);
  });
  return absent;
}

}  // namespace plimsoll::train
