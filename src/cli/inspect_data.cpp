#include "cli/inspect_data.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "formats/token_file.h"
#include "formats/tokenizer/tokenizer.h"
#include "io/files.h"

namespace plimsoll::cli {

namespace {

using base::Json;

constexpr std::string_view kSample = "The 42 ships don't sink: caf\xC3\xA9, \xE6\x97\xA5\xE6\x9C\xAC!";

struct Lengths {
  std::int64_t shortest = 0;
  std::int64_t longest = 0;
};

Lengths document_lengths(const formats::TokenSource& source) {
  const std::span<const std::int64_t> starts = source.document_starts();
  Lengths lengths{source.size(), 0};
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::int64_t length = (i + 1 < starts.size() ? starts[i + 1] : source.size()) - starts[i];
    lengths = {std::min(lengths.shortest, length), std::max(lengths.longest, length)};
  }
  return lengths;
}

std::string id_text(std::optional<std::int32_t> id) { return id ? fmt::format("{}", *id) : "none"; }

Json ids_json(const std::vector<std::int32_t>& ids) {
  Json json = Json::array();
  for (const std::int32_t id : ids) json.push(Json(id));
  return json;
}

}  // namespace

bool looks_like_tokenizer(io::FileSystem& file_system, const std::string& path) {
  const io::Mapping mapping = file_system.map(path);
  const std::string_view text(reinterpret_cast<const char*>(mapping.bytes().data()), mapping.bytes().size());
  if (!text.starts_with('{')) return io::Path(path).filename().string().find(".model") != std::string::npos;
  try {
    const Json json = base::parse_json(text, path, {.max_bytes = std::size_t{256} << 20});
    const Json* model = json.find("model");
    return model != nullptr && model->is_object() && model->find("vocab") != nullptr && !model->find("vocab")->is_number();
  } catch (const base::Error&) {
    return false;  // whoever reads it as something else will say what is wrong
  }
}

void inspect_tokenizer(io::FileSystem& file_system, const InspectOptions& options) {
  const auto tokenizer = formats::tokenizer::open_tokenizer(file_system, options.path);
  const std::vector<std::int32_t> sample = tokenizer->encode(kSample);
  if (options.json) {
    Json json = Json::object({{"kind", "tokenizer"},
                              {"description", tokenizer->describe()},
                              {"vocab", tokenizer->vocab()},
                              {"before", ids_json(tokenizer->before())},
                              {"after", ids_json(tokenizer->after())}});
    json.set("end_of_text", tokenizer->end_of_text() ? Json(*tokenizer->end_of_text()) : Json());
    fmt::print("{}\n", base::write_json(json));
    return;
  }
  fmt::print("{}: {}\n", options.path, tokenizer->describe());
  fmt::print("  ends a document: {}; put before a text: [{}], after: [{}]\n", id_text(tokenizer->end_of_text()),
             fmt::join(tokenizer->before(), ", "), fmt::join(tokenizer->after(), ", "));
  fmt::print("  \"{}\" is [{}]\n", kSample, fmt::join(sample, ", "));
}

void inspect_tokens(io::FileSystem& file_system, const InspectOptions& options) {
  const auto format = formats::recognise_token_file(file_system, options.path);
  auto source = formats::open_token_file(file_system, options.path, {.certain = true});
  std::string name(formats::name_of(format.value_or(formats::TokenFormat::headerless)));
  if (format == formats::TokenFormat::headerless && formats::looks_like_four_bytes(*source)) {
    source = formats::open_token_file(file_system, options.path, {.token_bytes = 4});
    name += ", by the looks of it 4 bytes an id: set \"data.token_bytes\" to 4";
  }
  const std::int32_t largest = formats::check_all_ids(*source, std::int64_t{1} << 31);
  const auto documents = static_cast<std::int64_t>(source->document_starts().size());
  const Lengths lengths = document_lengths(*source);
  if (options.json) {
    Json json =
        Json::object({{"kind", "tokens"}, {"format", name}, {"tokens", source->size()}, {"largest_id", largest}, {"documents", documents}});
    if (documents > 0) {
      json.set("shortest_document", lengths.shortest);
      json.set("longest_document", lengths.longest);
    }
    fmt::print("{}\n", base::write_json(json));
    return;
  }
  fmt::print("{}: {} tokens ({}), largest id {}", options.path, source->size(), name, largest);
  fmt::print("{}\n", documents > 0 ? fmt::format(", {} documents of {} to {} tokens", documents, lengths.shortest, lengths.longest) : "");
}

}  // namespace plimsoll::cli
