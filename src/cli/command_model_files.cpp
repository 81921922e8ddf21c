// import and export: Hugging Face folders in and out.
#include <fmt/format.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/say.h"
#include "io/posix_file_system.h"
#include "train/stored/export_model.h"

namespace plimsoll::cli {

namespace {

std::optional<formats::FileDType> dtype_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  if (name == "f32") return formats::FileDType::f32;
  return name == "bf16" ? formats::FileDType::bf16 : formats::FileDType::f16;
}

train::ExportRequest request_of(const ModelFileOptions& options, const io::Path& kept) {
  const std::optional<base::Bytes> shard = base::parse_bytes(options.max_shard);
  if (!shard || shard->count < 1) base::bad_input("--max-shard: found \"{}\", expected an amount such as 5GB", options.max_shard);
  return {.folder = options.to, .dtype = dtype_of(options.dtype), .max_shard_bytes = shard->count, .kept = kept};
}

void convert(io::FileSystem& file_system, const Source& source, const ModelFileOptions& options) {
  const train::StoredModel stored = train::StoredModel::open(file_system, source.place, source.run);
  const train::Exported exported = train::export_model(file_system, stored, source.run, request_of(options, source.kept));
  say_absent(stored.origin(), exported.drawn);
  if (!exported.tokenizer)
    say("no tokenizer goes along: {}; name one with --set data.tokenizer=FILE\n",
        source.place.model_folder.empty() ? "the run read token files and names none" : "the folder has none");
  if (options.run.json) {
    fmt::print("{}\n", base::write_json(base::Json::object({{"from", stored.origin()},
                                                            {"to", options.to},
                                                            {"parameters", exported.parameters},
                                                            {"dtype", formats::name_of(exported.dtype)},
                                                            {"tokenizer", exported.tokenizer}})));
    return;
  }
  fmt::print("{}: {} parameters in {} from {}\n", options.to, exported.parameters, formats::name_of(exported.dtype), stored.origin());
}

}  // namespace

void export_command(const ModelFileOptions& options) {
  io::PosixFileSystem file_system;
  convert(file_system, read_source(file_system, options.run), options);
}

void import_command(const ModelFileOptions& options) {
  io::PosixFileSystem file_system;
  const Source source = read_source(file_system, options.run);
  if (source.place.model_folder.empty()) {
    base::bad_input("{}: this is no Hugging Face folder; expected one with config.json and safetensors (a run is written out by export)",
                    options.run.file);
  }
  convert(file_system, source, options);
  if (!options.run.json) fmt::print("train it with \"model\": {{\"path\": {}}}\n", base::quote_json(options.to));
}

}  // namespace plimsoll::cli
