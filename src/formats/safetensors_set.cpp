#include "formats/safetensors_set.h"

#include "base/json.h"
#include "io/files.h"

namespace plimsoll::formats {

static_assert(std::is_nothrow_move_constructible_v<Safetensors>, "a growing vector must move files, not copy them");

namespace {

constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::int64_t kMaxIndexBytes = std::int64_t{16} << 20;

// A name from an index may lead nowhere but to a file beside it.
void check_file_name(const base::Json& name) {
  const std::string& text = name.as_string();
  if (text.empty() || text == "." || text == ".." || text.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
    name.fail_expected("the name of a file in the same folder");
  }
}

// The files of `tensors`, in order, each up to `max_bytes`.
std::vector<std::vector<TensorSpec>> split_in_shards(const std::vector<TensorSpec>& tensors, std::int64_t max_bytes) {
  std::vector<std::vector<TensorSpec>> shards(1);
  std::int64_t filled = 0;
  for (const TensorSpec& tensor : tensors) {
    const std::int64_t bytes = bytes_of(tensor);
    if (!shards.back().empty() && filled + bytes > max_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(tensor);
    filled += bytes;
  }
  return shards;
}

io::Path weights_in_folder(io::FileSystem& file_system, const io::Path& folder) {
  for (const std::string_view name : {kSingle, kIndex}) {
    if (file_system.status(folder / name)) return folder / name;
  }
  std::vector<io::Path> found;
  bool pickled = false;
  for (const io::Entry& entry : file_system.list(folder)) {
    const io::Path path = folder / entry.name;
    if (path.extension() == ".safetensors") found.push_back(path);
    pickled = pickled || path.extension() == ".bin" || path.extension() == ".pt" || path.extension() == ".pth";
  }
  if (found.size() == 1) return found[0];
  if (found.empty()) {
    base::bad_input("'{}' holds no safetensors file{}", folder.string(),
                    pickled ? "; its weights are in a pickle, which can carry code and is never read: save them as safetensors first" : "");
  }
  base::bad_input("'{}' holds {} safetensors files and neither {} nor {}; name the one to read", folder.string(), found.size(), kSingle,
                  kIndex);
}

}  // namespace

SafetensorsSet SafetensorsSet::open(io::FileSystem& file_system, const io::Path& path) {
  const auto status = file_system.status(path);
  if (!status) base::bad_input("'{}' does not exist; expected a safetensors file, its index or a folder with either", path.string());
  if (status->kind == io::EntryKind::directory) return open(file_system, weights_in_folder(file_system, path));
  if (path.extension() == ".json") return open_index(file_system, path);
  SafetensorsSet set;
  set.name_ = path.string();
  set.add_file(Safetensors::open(file_system, path));
  return set;
}

SafetensorsSet SafetensorsSet::open_index(io::FileSystem& file_system, const io::Path& index) {
  const std::string text = io::read_text(file_system, index, kMaxIndexBytes);
  const base::Json json = base::parse_json(text, index.string(), {.strict = true, .max_bytes = kMaxIndexBytes});
  const base::Json& weight_map = json.at("weight_map");
  SafetensorsSet set;
  set.name_ = index.string();
  std::map<std::string, std::size_t> numbers;  // of files, by name
  for (const base::JsonMember& member : weight_map.as_object()) {
    check_file_name(member.value);
    numbers.emplace(member.value.as_string(), 0);
  }
  for (auto& [name, number] : numbers) {
    number = set.files_.size();
    set.add_file(Safetensors::open(file_system, index.parent_path() / name));
  }
  for (const base::JsonMember& member : weight_map.as_object()) {
    const std::size_t number = numbers.at(member.value.as_string());
    const auto found = set.tensors_.find(member.key);
    if (found == set.tensors_.end() || found->second.first != number) {
      base::bad_input("{}: the index says that '{}' holds tensor '{}', but it does not", weight_map.where_key(member),
                      member.value.as_string(), member.key);
    }
  }
  for (const auto& [name, place] : set.tensors_) {
    if (!weight_map.find(name)) {
      base::bad_input("'{}' holds tensor '{}', which its index '{}' does not name", set.files_[place.first].name(), name, index.string());
    }
  }
  return set;
}

void SafetensorsSet::add_file(Safetensors file) {
  files_.push_back(std::move(file));  // the views' storage moves along and stays where it is
  for (const TensorView& view : files_.back().tensors()) {
    const auto [place, added] = tensors_.emplace(view.name, std::pair(files_.size() - 1, &view));
    if (!added) base::bad_input("tensor '{}' is in '{}' and in '{}'", view.name, files_[place->second.first].name(), files_.back().name());
  }
}

std::vector<std::string_view> SafetensorsSet::names() const {
  std::vector<std::string_view> names;
  for (const auto& [name, place] : tensors_) names.push_back(name);
  return names;
}

const TensorView* SafetensorsSet::find(std::string_view tensor) const {
  const auto found = tensors_.find(tensor);
  return found == tensors_.end() ? nullptr : files_[found->second.first].find(tensor);
}

const TensorView& SafetensorsSet::at(std::string_view tensor) const {
  const TensorView* found = find(tensor);
  if (!found) base::bad_input("'{}' holds no tensor '{}'", name_, tensor);
  return *found;
}

SafetensorsSetWriter::SafetensorsSetWriter(io::FileSystem& file_system, const io::Path& folder, const std::vector<TensorSpec>& tensors,
                                           const ShardOptions& options)
    : file_system_(file_system), folder_(folder), options_(options) {
  const auto shards = split_in_shards(tensors, options.max_bytes);
  for (std::size_t number = 0; number < shards.size(); ++number) {
    file_names_.push_back(shards.size() == 1 ? options.stem + ".safetensors"
                                             : fmt::format("{}-{:05}-of-{:05}.safetensors", options.stem, number + 1, shards.size()));
    writers_.push_back(std::make_unique<SafetensorsWriter>(file_system, folder / file_names_.back(), shards[number], options.metadata));
    for (const TensorSpec& tensor : shards[number]) {
      const bool added = shard_of_.emplace(tensor.name, number).second;
      PLIMSOLL_CHECK(added, "tensor {} twice in one set", tensor.name);
      total_bytes_ += bytes_of(tensor);
    }
  }
}

void SafetensorsSetWriter::write(std::string_view tensor, std::int64_t offset, std::span<const std::byte> data) {
  const auto found = shard_of_.find(tensor);
  PLIMSOLL_CHECK(found != shard_of_.end(), "tensor {} is not in {}", tensor, folder_.string());
  writers_[found->second]->write(tensor, offset, data);
}

void SafetensorsSetWriter::finish() {
  for (const auto& writer : writers_) writer->finish();
  if (writers_.size() == 1) return;
  base::JsonObject weight_map;
  for (const auto& [name, shard] : shard_of_) weight_map.add(name, file_names_[shard]);
  base::Json index = base::Json::object({{"metadata", base::Json::object({{"total_size", total_bytes_}})}});
  index.set("weight_map", base::Json(std::move(weight_map)));
  const std::string text = base::write_json(index, base::JsonLayout::pretty) + "\n";
  io::replace_file(file_system_, folder_ / (options_.stem + ".safetensors.index.json"), io::as_bytes(text));
}

}  // namespace plimsoll::formats
