// A writer's Part as JSON, for the way to the rank that commits. It travels between ranks of one job, not through files,
// but is checked like everything that comes from outside the process.
#include "checkpoint/save.h"

namespace plimsoll::checkpoint {

using base::Json;

Json to_json(const Part& part) {
  Json tensors = Json::array();
  for (const TensorRecord& tensor : part.tensors) {
    Json shape = Json::array();
    for (const std::int64_t extent : tensor.shape) shape.push(extent);
    Json pieces = Json::array();
    for (const Piece& piece : tensor.pieces) pieces.push(Json::array({Json(piece.offset), Json(piece.begin), Json(piece.bytes)}));
    Json item = Json::object({{"name", tensor.name}, {"dtype", base::name_of(tensor.dtype)}});
    item.set("shape", std::move(shape));
    item.set("pieces", std::move(pieces));
    tensors.push(std::move(item));
  }
  Json sums = Json::array();
  for (const std::uint32_t sum : part.file.sums) sums.push(sum);
  Json json = Json::object({{"writer", part.writer}, {"bytes", part.file.bytes}});
  json.set("sums", std::move(sums));
  json.set("tensors", std::move(tensors));
  return json;
}

namespace {

TensorRecord record_from_json(const Json& json, std::int64_t writer) {
  TensorRecord record{.name = json.at("name").as_string(), .shape = {}, .pieces = {}};
  const auto dtype = base::dtype_from_name(json.at("dtype").as_string());
  if (!dtype) json.at("dtype").fail_expected("a type of tensor elements");
  record.dtype = *dtype;
  for (const Json& extent : json.at("shape").as_array()) record.shape.push_back(extent.as_integer());
  for (const Json& piece : json.at("pieces").as_array()) {
    record.pieces.push_back({writer, piece.at(std::size_t{0}).as_integer(), piece.at(1).as_integer(), piece.at(2).as_integer()});
  }
  return record;
}

}  // namespace

Part part_from_json(const Json& json) {
  Part part{.writer = json.at("writer").as_integer(), .file = {}, .tensors = {}};
  part.file.bytes = json.at("bytes").as_integer();
  for (const Json& sum : json.at("sums").as_array()) part.file.sums.push_back(static_cast<std::uint32_t>(sum.as_integer()));
  for (const Json& tensor : json.at("tensors").as_array()) part.tensors.push_back(record_from_json(tensor, part.writer));
  return part;
}

}  // namespace plimsoll::checkpoint
