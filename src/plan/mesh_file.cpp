#include "plan/mesh_file.h"

#include <algorithm>

#include "base/error.h"

namespace plimsoll::plan {

namespace {

using base::Json;
using ops::Axis;

constexpr std::int64_t kMostRanks = 1'000'000'000;
constexpr std::int64_t kMostOfAnAxis = 1'000'000;

Json further_json(const MeshAxis& entry) {
  return Json::object({{"name", entry.row.axis.name()},
                       {"extent", entry.extent},
                       {"inside", entry.row.inside.name()},
                       {"shares", name_of(entry.row.shares)},
                       {"sums_gradients", entry.row.sums_gradients},
                       {"at_once", entry.row.at_once},
                       {"one_writes", entry.row.one_writes}});
}

std::int32_t extent_from(const Json& json) {
  const std::int64_t extent = json.as_integer();
  if (extent < 1 || extent > kMostOfAnAxis) json.fail_expected("1 to 1,000,000 ranks on each axis");
  return static_cast<std::int32_t>(extent);
}

ops::Shares shares_from(const Json& json) {
  for (std::size_t index = 0; index < ops::kShares; ++index) {
    if (name_of(static_cast<ops::Shares>(index)) == json.as_string()) return static_cast<ops::Shares>(index);
  }
  json.fail_expected("\"nothing\", \"batch\", \"tensors\" or \"blocks\"");
}

ops::AxisRow row_from(const Json& json) {
  const std::optional<Axis> axis = Axis::named(json.at("name").as_string());
  if (!axis || ops::known_axis(*axis) != nullptr) json.at("name").fail_expected("a name of 1 to 15 letters that no other axis has");
  ops::AxisRow row{.axis = *axis, .shares = shares_from(json.at("shares"))};
  if (const std::string& inside = json.at("inside").as_string(); !inside.empty()) {
    const std::optional<Axis> outer = Axis::named(inside);
    if (!outer) json.at("inside").fail_expected("the name of an axis");
    row.inside = *outer;
  }
  row.sums_gradients = json.at("sums_gradients").as_bool();
  row.at_once = json.at("at_once").as_bool();
  row.one_writes = json.at("one_writes").as_bool();
  return row;
}

struct Further {
  std::vector<ops::AxisRow> rows;
  std::vector<std::int32_t> extents;  // one for each
};

// Each after the one that it is inside of.
Further further_from(const Json* json) {
  Further further;
  if (json == nullptr) return further;
  for (const Json& item : json->as_array()) {
    const ops::AxisRow row = row_from(item);
    const bool twice =
        std::any_of(further.rows.begin(), further.rows.end(), [&](const ops::AxisRow& other) { return other.axis == row.axis; });
    further.rows.push_back(row);
    further.extents.push_back(extent_from(item.at("extent")));
    if (twice || ops::nested(further.rows).size() != ops::nested({}).size() + further.rows.size())
      item.fail_expected("an axis of its own inside one that is there");
  }
  return further;
}

// Of places of the pipe axis that have their own: data, tensor, and what the latter's inner part has.
void set_places(Mesh& mesh, const Json& places) {
  if (std::ssize(places.as_array()) != mesh.extent(Axis::pipe)) places.fail_expected("degrees of every place of the pipe axis, or none");
  if (mesh.find(Axis::tensor_inner) == nullptr) mesh.add_part(Axis::tensor_inner, 1, 1);
  std::vector<std::vector<std::int32_t>> own;
  std::int64_t ranks = 0;
  for (const Json& place : places.as_array()) {
    std::vector<std::int32_t>& extents = own.emplace_back(mesh.table().size(), 1);
    std::size_t next = 0;
    for (const Axis& axis : {Axis::data, Axis::tensor, Axis::tensor_inner}) extents[mesh.index(axis)] = extent_from(place.at(next++));
    if (extents[mesh.index(Axis::tensor)] % extents[mesh.index(Axis::tensor_inner)] != 0)
      place.fail_expected("an inner axis that divides its own");
    ranks += static_cast<std::int64_t>(extents[mesh.index(Axis::data)]) * extents[mesh.index(Axis::tensor)];
  }
  if (ranks > kMostRanks) places.fail_expected("1,000,000,000 ranks at most");
  mesh.set_own(std::move(own));
}

}  // namespace

void put_mesh(Json& plan, const Mesh& mesh) {
  const MeshAxis* inner = mesh.find(Axis::data_inner);
  plan.set("mesh", Json::array({mesh.extent(Axis::pipe), mesh.extent(Axis::data), mesh.extent(Axis::tensor), mesh.tied_place(),
                                inner == nullptr ? 0 : inner->extent, mesh.extent(Axis::tensor_inner)}));
  Json::Array places;
  for (std::int32_t place = 0; !mesh.even() && place < mesh.extent(Axis::pipe); ++place) {
    places.push_back(
        Json::array({mesh.extent_at(Axis::data, place), mesh.extent_at(Axis::tensor, place), mesh.extent_at(Axis::tensor_inner, place)}));
  }
  plan.set("places", Json(std::move(places)));
  Json::Array further;
  for (const MeshAxis& entry : mesh.table()) {
    if (ops::known_axis(entry.row.axis) == nullptr) further.push_back(further_json(entry));
  }
  if (!further.empty()) plan.set("axes", Json(std::move(further)));
}

Mesh mesh_from(const Json& plan) {
  const Json& extents = plan.at("mesh");
  const Further further = further_from(plan.find("axes"));
  std::vector<MeshAxis> axes;
  std::int64_t ranks = 1;
  for (const ops::AxisRow& row : ops::nested(further.rows)) {
    const auto found = std::find(further.rows.begin(), further.rows.end(), row);
    const std::size_t known = row.axis == Axis::pipe ? 0 : row.axis == Axis::data ? 1 : 2;
    axes.push_back({.row = row,
                    .extent = found == further.rows.end() ? extent_from(extents.at(known))
                                                          : further.extents[static_cast<std::size_t>(found - further.rows.begin())]});
    ranks *= axes.back().extent;
    if (ranks > kMostRanks) extents.fail_expected("1,000,000,000 ranks at most");
  }
  Mesh mesh(std::move(axes));
  const auto part = [&](std::size_t index, std::int64_t least, std::int64_t most) {
    const std::int64_t value = extents.at(index).as_integer();
    if (value < least || value > most) extents.fail_expected("a tied place on the pipe axis, and inner axes that divide theirs");
    return static_cast<std::int32_t>(value);
  };
  const std::int32_t tied = part(3, 0, mesh.extent(Axis::pipe) - 1);
  const std::int32_t data_inner = part(4, 0, mesh.extent(Axis::data));
  const std::int32_t tensor_inner = part(5, 1, mesh.extent(Axis::tensor));
  if ((data_inner > 0 && mesh.extent(Axis::data) % data_inner != 0) || mesh.extent(Axis::tensor) % tensor_inner != 0)
    extents.fail_expected("inner axes that divide theirs");
  mesh.add_inner(data_inner, tensor_inner);
  if (!plan.at("places").as_array().empty()) set_places(mesh, plan.at("places"));
  mesh.tie(tied);
  return mesh;
}

}  // namespace plimsoll::plan
