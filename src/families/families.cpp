#include "families/families.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace plimsoll::families {

bool Family::has(std::string_view setting) const {
  const auto is = [&](const Setting& one) { return one.key == setting; };
  return std::find(settings.begin(), settings.end(), setting) != settings.end() || std::any_of(own.begin(), own.end(), is);
}

std::span<const model::Family> all_families() {
  static const auto kFamilies = [] {
    std::array<model::Family, std::size(kAllFamilies)> families{};
    std::transform(std::begin(kAllFamilies), std::end(kAllFamilies), families.begin(), [](FamilyRow row) { return row(); });
    return families;
  }();
  return kFamilies;
}

model::Family find_family(std::string_view name) {
  const auto found = std::ranges::find(all_families(), name, [](model::Family family) { return family->name; });
  return found == all_families().end() ? nullptr : *found;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const model::Family family : all_families()) names.emplace_back(family->name);
  return names;
}

std::optional<model::Model> preset(std::string_view name) {
  for (const model::Family family : all_families()) {
    for (const Preset& candidate : family->presets) {
      if (candidate.name == name) return candidate.make();
    }
  }
  return std::nullopt;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const model::Family family : all_families()) {
    for (const Preset& candidate : family->presets) names.emplace_back(candidate.name);
  }
  return names;
}

model::Model defaults(model::Family family) {
  model::Model model;
  model.family = family;
  for (const Setting& setting : family->own) model.own.set(setting.key, setting.otherwise);
  if (family->defaults != nullptr) family->defaults(model);
  return model;
}

std::vector<std::string> problems(const model::Model& model) {
  std::vector<std::string> found;
  if (model.family->problems != nullptr) model.family->problems(model, found);
  return found;
}

std::int64_t parameter_count(const model::Model& model) {
  if (model.family->parameters != nullptr) return model.family->parameters(model);
  graph::Builder build({.micro_batch = {.samples = 1, .sequence = 1}});
  build_forward(model, build);
  const graph::Graph graph = std::move(build).finish();
  std::int64_t count = 0;
  for (const graph::Parameter& parameter : graph.parameters) count += graph.values[parameter.weight].type.shape.elements();
  return count;
}

void build_forward(const model::Model& model, graph::Builder& build) {
  PLIMSOLL_CHECK(model.family != nullptr, "a model without a family");
  model.family->build(model, build);
}

}  // namespace plimsoll::families
