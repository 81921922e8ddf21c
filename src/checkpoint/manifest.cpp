#include "checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/ranges.h>

#include "checkpoint/sha256.h"

namespace plimsoll::checkpoint {

namespace {

using base::Json;

constexpr std::string_view kOpening = "{\"plimsoll_checkpoint\":";
constexpr std::string_view kDigestKey = ",\"sha256\":\"";
constexpr std::size_t kDigestDigits = 64;
constexpr std::int64_t kSmallestBlock = 512;
constexpr std::int64_t kLargestBlock = std::int64_t{1} << 30;
constexpr std::int64_t kLargestCount = std::int64_t{1} << 56;
constexpr int kMaxDims = 16;

// ---- the envelope

struct Envelope {
  std::int64_t version = 0;
  std::string_view before;  // up to the digest
  std::string_view digest;
  std::string_view after;  // from the digest's closing quote on
};

std::optional<Envelope> take_apart(std::string_view text) {
  if (!text.starts_with(kOpening)) return std::nullopt;
  Envelope envelope;
  const char* const digits = text.data() + kOpening.size();
  const auto [stop, error] = std::from_chars(digits, text.data() + text.size(), envelope.version);
  if (error != std::errc{}) return std::nullopt;
  const auto version_end = static_cast<std::size_t>(stop - text.data());
  if (!text.substr(version_end).starts_with(kDigestKey)) return std::nullopt;
  const std::size_t digest_begin = version_end + kDigestKey.size();
  if (text.size() < digest_begin + kDigestDigits) return std::nullopt;
  envelope.before = text.substr(0, digest_begin);
  envelope.digest = text.substr(digest_begin, kDigestDigits);
  envelope.after = text.substr(digest_begin + kDigestDigits);
  return envelope;
}

std::string digest_of(std::string_view before, std::string_view after) { return Sha256().update(before).update(after).hex(); }

// ---- writing

std::string sums_text(const std::vector<std::uint32_t>& sums) {
  std::string text;
  text.reserve(8 * sums.size());
  for (const std::uint32_t sum : sums) fmt::format_to(std::back_inserter(text), "{:08x}", sum);
  return text;
}

template <typename Numbers>
Json numbers_json(const Numbers& numbers) {
  Json json = Json::array();
  for (const std::int64_t number : numbers) json.push(number);
  return json;
}

Json tensor_json(const TensorRecord& tensor) {
  Json pieces = Json::array();
  for (const Piece& piece : tensor.pieces)
    pieces.push(numbers_json(std::initializer_list{piece.file, piece.offset, piece.begin, piece.bytes}));
  Json json = Json::object({{"name", tensor.name}, {"dtype", base::name_of(tensor.dtype)}, {"shape", numbers_json(tensor.shape)}});
  json.set("pieces", std::move(pieces));
  return json;
}

// ---- reading

std::int64_t read_count(const Json& json) {
  if (json.kind() != Json::Kind::integer || json.as_integer() < 0 || json.as_integer() > kLargestCount)
    json.fail_expected("a number of bytes or elements");
  return json.as_integer();
}

std::vector<std::uint32_t> read_sums(const Json& json, std::int64_t blocks) {
  const std::string& text = json.as_string();
  if (std::ssize(text) != 8 * blocks) json.fail_expected(fmt::format("{} sums of 8 digits", blocks));
  std::vector<std::uint32_t> sums;
  sums.reserve(static_cast<std::size_t>(blocks));
  for (const char* at = text.data(); at != text.data() + text.size(); at += 8) {
    std::uint32_t sum = 0;
    if (std::from_chars(at, at + 8, sum, 16).ptr != at + 8) json.fail_expected("hexadecimal sums");
    sums.push_back(sum);
  }
  return sums;
}

FileRecord read_file(const Json& json, std::int64_t block_bytes) {
  FileRecord file;
  file.bytes = read_count(json.at("bytes"));
  file.sums = read_sums(json.at("crc32c"), (file.bytes + block_bytes - 1) / block_bytes);
  return file;
}

Piece read_piece(const Json& json, const std::vector<FileRecord>& files) {
  if (json.as_array().size() != 4) json.fail_expected("[file, offset, begin, bytes]");
  const Piece piece{read_count(json.at(0)), read_count(json.at(1)), read_count(json.at(2)), read_count(json.at(3))};
  if (piece.file >= std::ssize(files)) json.fail_expected(fmt::format("one of {} files", files.size()));
  if (piece.offset + piece.bytes > files[static_cast<std::size_t>(piece.file)].bytes) json.fail_expected("a range within its file");
  return piece;
}

std::optional<std::int64_t> checked_bytes(const TensorRecord& tensor) {
  std::int64_t bytes = base::size_of(tensor.dtype);
  for (const std::int64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return bytes;
}

TensorRecord read_tensor(const Json& json, const std::vector<FileRecord>& files) {
  TensorRecord tensor{.name = json.at("name").as_string(), .shape = {}, .pieces = {}};
  const auto dtype = base::dtype_from_name(json.at("dtype").as_string());
  if (!dtype) json.at("dtype").fail_expected("a type of tensor elements");
  tensor.dtype = *dtype;
  const Json::Array& extents = json.at("shape").as_array();
  if (std::ssize(extents) > kMaxDims) json.at("shape").fail_expected(fmt::format("at most {} extents", kMaxDims));
  for (const Json& extent : extents) tensor.shape.push_back(read_count(extent));
  const auto bytes = checked_bytes(tensor);
  if (!bytes) json.at("shape").fail_expected("a shape whose size 64 bits can hold");
  std::int64_t reached = 0;
  for (const Json& item : json.at("pieces").as_array()) {
    tensor.pieces.push_back(read_piece(item, files));
    if (tensor.pieces.back().begin != reached)
      item.fail_expected(fmt::format("a piece that begins at byte {}, where the one before it ends", reached));
    reached += tensor.pieces.back().bytes;
    if (reached > *bytes) break;
  }
  if (reached != *bytes) json.at("pieces").fail_expected(fmt::format("pieces of {} bytes in all", *bytes));
  return tensor;
}

void read_tensors(const Json& json, Manifest& manifest) {
  for (const Json& item : json.as_array()) {
    TensorRecord tensor = read_tensor(item, manifest.files);
    if (!manifest.tensors.empty() && manifest.tensors.back().name >= tensor.name)
      item.at("name").fail_expected("names in order, each once");
    manifest.tensors.push_back(std::move(tensor));
  }
}

}  // namespace

std::string describe(base::DType dtype, const std::vector<std::int64_t>& shape) {
  return fmt::format("{}[{}]", base::name_of(dtype), fmt::join(shape, ", "));
}

std::int64_t TensorRecord::bytes() const {
  const auto bytes = checked_bytes(*this);
  PLIMSOLL_CHECK(bytes.has_value(), "size of tensor {}", name);
  return *bytes;
}

const TensorRecord* Manifest::find(std::string_view tensor) const {
  const auto before = [](const TensorRecord& record, std::string_view name) { return record.name < name; };
  const auto found = std::lower_bound(tensors.begin(), tensors.end(), tensor, before);
  return found != tensors.end() && found->name == tensor ? &*found : nullptr;
}

std::int64_t Manifest::data_bytes() const {
  std::int64_t bytes = 0;
  for (const FileRecord& file : files) bytes += file.bytes;
  return bytes;
}

std::string seal_manifest(std::int64_t version, std::string_view body) {
  const std::string before = fmt::format("{}{}{}", kOpening, version, kDigestKey);
  const std::string after = fmt::format("\",{}", body.substr(std::min<std::size_t>(1, body.size())));  // the body without its '{'
  return before + digest_of(before, after) + after;
}

std::string write_manifest(const Manifest& manifest) {
  Json files = Json::array();
  for (const FileRecord& file : manifest.files) files.push(Json::object({{"bytes", file.bytes}, {"crc32c", sums_text(file.sums)}}));
  Json tensors = Json::array();
  for (const TensorRecord& tensor : manifest.tensors) tensors.push(tensor_json(tensor));
  Json body = Json::object({{"run", manifest.identity.run}, {"config", manifest.identity.config}, {"step", manifest.step}});
  body.set("state", manifest.state);
  body.set("block_bytes", manifest.block_bytes);
  body.set("files", std::move(files));
  body.set("tensors", std::move(tensors));
  return seal_manifest(kFormatVersion, base::write_json(body));
}

Manifest parse_manifest(std::string_view text, const std::string& name) {
  const auto envelope = take_apart(text);
  if (!envelope) base::bad_input("'{}' is no manifest of a checkpoint: it does not begin with its version and digest", name);
  const std::string digest = digest_of(envelope->before, envelope->after);
  if (digest != envelope->digest) {
    base::bad_input("'{}' is damaged: its SHA-256 is {}, but it says {}", name, digest, envelope->digest);
  }
  if (envelope->version > kFormatVersion) {
    throw NewerFormat(
        base::ErrorKind::bad_input,
        fmt::format("'{}' was written by a newer Plimsoll: its format is version {}, this one reads up to {}; use the newer one", name,
                    envelope->version, kFormatVersion));
  }
  if (envelope->version != kFormatVersion)
    base::bad_input("'{}' has format version {}; expected {}", name, envelope->version, kFormatVersion);
  const Json json = base::parse_json(text, name, {.strict = true, .max_bytes = static_cast<std::size_t>(kMaxManifestBytes)});
  Manifest manifest;
  manifest.identity = {json.at("run").as_string(), json.at("config").as_string()};
  manifest.step = read_count(json.at("step"));
  manifest.state = json.at("state");
  manifest.block_bytes = read_count(json.at("block_bytes"));
  if (manifest.block_bytes < kSmallestBlock || manifest.block_bytes > kLargestBlock)
    json.at("block_bytes").fail_expected("512 bytes to 1 GiB");
  for (const Json& file : json.at("files").as_array()) manifest.files.push_back(read_file(file, manifest.block_bytes));
  read_tensors(json.at("tensors"), manifest);
  return manifest;
}

}  // namespace plimsoll::checkpoint
