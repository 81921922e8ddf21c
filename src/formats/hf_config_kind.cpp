#include "formats/hf_config_kind.h"

#include <optional>

#include <fmt/ranges.h>

#include "base/error.h"
#include "families/families.h"

namespace plimsoll::formats {

namespace {

std::optional<HfKind> find_kind(std::string_view type) {
  for (const model::Family family : families::all_families()) {
    if (!family->files) continue;
    for (const families::FileKind& kind : family->files->kinds) {
      if (kind.type == type) return HfKind{family, &kind};
    }
  }
  return std::nullopt;
}

std::string known_types() {
  std::vector<std::string_view> types;
  for (const model::Family family : families::all_families()) {
    if (!family->files) continue;
    for (const families::FileKind& kind : family->files->kinds) types.push_back(kind.type);
  }
  return fmt::format("{}", fmt::join(types, ", "));
}

}  // namespace

const families::Files& hf_files_of(const model::Model& model) {
  if (!model.family->files)
    base::bad_input("a model of the {} family has no form in Hugging Face folders; known are {}", model.family->name, known_types());
  return *model.family->files;
}

HfKind hf_kind_of(const base::Json& config) {
  const base::Json& type = config.at("model_type");
  const std::optional<HfKind> kind = find_kind(type.as_string());
  if (!kind) type.fail_expected("a model that Plimsoll computes: " + known_types());
  return *kind;
}

HfKind hf_kind_for(const model::Model& model, const base::Json& original) {
  const families::Files& files = hf_files_of(model);
  const base::Json* type = original.is_object() ? original.find("model_type") : nullptr;
  if (type && type->is_string()) {
    const std::optional<HfKind> kind = find_kind(type->as_string());
    if (kind && kind->family == model.family && files.describes(kind->kind->type, model)) return *kind;
  }
  for (const families::FileKind& kind : files.kinds) {
    if (files.describes(kind.type, model)) return {model.family, &kind};
  }
  base::bad_input("{}", files.beyond(model));
}

}  // namespace plimsoll::formats
