// Reading a run file: the document is walked once, each key looked up in the table of fields.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"
#include "config/deepspeed.h"
#include "config/derive.h"
#include "config/fields.h"
#include "config/other_names.h"
#include "config/overrides.h"
#include "config/problems.h"
#include "families/families.h"

namespace plimsoll::config {

namespace {

using base::Json;
using base::JsonMember;

constexpr std::size_t kMostBytes = std::size_t{4} << 20;

Origin origin_of(const std::string& where) {
  return {.kind = where.starts_with(kSetPrefix) ? OriginKind::set : OriginKind::file, .text = where};
}

// The keys that a Hugging Face directory does not fix: they change no weight's shape or meaning.
bool allowed_beside_path(std::string_view key) {
  return key == "model.path" || key == "model.dropout" || key == "model.attention_dropout" || key == "model.embedding_dropout";
}

void read_field(const Field& field, const Json& value, Run& run) {
  if (!field.read(value, run)) {
    std::string expected = field.expects;
    if (value.is_string()) {
      const std::vector<std::string_view> choices(field.choices.begin(), field.choices.end());
      std::string_view meant = find_other_value(field.key, value.as_string());
      if (meant.empty()) meant = base::nearest_name(value.as_string(), choices);
      if (!meant.empty()) expected += fmt::format("; did you mean \"{}\"?", meant);
    }
    fail_value(value, field.key, expected);
  }
  run.origins[field.key] = origin_of(value.where());
}

void set_model_origin(Run& run, const Origin& origin) {
  for (const Field& field : fields_of(run)) {
    if (field.key.starts_with("model.") && includes(field, *run.model.family)) run.origins[field.key] = origin;
  }
}

// What the other keys of "model" are laid on.
void start_model(const Json* model, Run& run) {
  const Json* preset = model != nullptr && model->is_string() ? model : nullptr;
  if (model != nullptr && !model->is_string()) {
    if (!model->is_object()) fail_value(*model, "model", "a preset's name or an object");
    preset = model->find("preset");
    const Json* path = model->find("path");
    const Json* family = model->find("family");
    if ((preset != nullptr) + (path != nullptr) + (family != nullptr) > 1) {
      fail_value(*model, "model", "only one of the keys \"preset\", \"path\" and \"family\"");
    }
    if (path != nullptr) return;
    if (preset == nullptr) {
      if (family != nullptr) read_field(*find_field("model.family"), *family, run);
      run.model = families::defaults(run.model.family);
      return;
    }
  }
  if (preset != nullptr) {
    read_field(*find_field("model.preset"), *preset, run);
  } else {
    run.preset = "gpt2";
  }
  const Origin named = run.origin("model.preset");
  run.model = *families::preset(run.preset);
  set_model_origin(run, {.kind = OriginKind::preset, .text = fmt::format("preset {}", run.preset)});
  run.origins["model.preset"] = named;
}

class Reader {
 public:
  Reader(Run& run, Problems& problems) : run_(run), problems_(problems) {}

  void read_group(const Json& object, const std::string& group) {
    for (const JsonMember& member : object.as_object()) problems_.attempt([&] { read_member(object, member, group); });
  }

 private:
  void read_member(const Json& object, const JsonMember& member, const std::string& group) {
    const std::string key = group.empty() ? member.key : fmt::format("{}.{}", group, member.key);
    const std::vector<Field> own = own_fields(*run_.model.family);
    const auto of_family = std::find_if(own.begin(), own.end(), [&](const Field& field) { return field.key == key; });
    if (of_family != own.end()) {
      read_one(*of_family, member.value);
    } else if (const Field* field = find_field(key)) {
      read_one(*field, member.value);
    } else if (is_group(key)) {
      read_subgroup(key, member.value);
    } else {
      base::bad_input("{}: found the unknown key {}, {}", object.where_key(member), base::quote_json(key),
                      known_keys_hint(group, member.key));
    }
  }

  void read_one(const Field& field, const Json& value) {
    const bool beside_path = field.key.starts_with("model.") && !run_.model_path.empty();
    if (beside_path && !allowed_beside_path(field.key)) {
      fail_value(value, field.key, fmt::format("no such key: the directory {} says it", base::quote_json(run_.model_path)));
    }
    read_field(field, value, run_);
    if (beside_path && field.key != "model.path") run_.model_overrides.set(field.key.substr(6), value);
  }

  void read_subgroup(const std::string& key, const Json& value) {
    // A group that --set made up was written nowhere.
    if (!value.where().empty()) run_.origins[key] = origin_of(value.where());
    if (key == "model" && value.is_string()) return;  // start_model has read it
    if (key == "strategy" && value.is_string()) {
      if (value.as_string() != "auto") fail_value(value, key, "\"auto\" or an object");
      run_.strategy_auto = true;
      return;
    }
    if (!value.is_object()) fail_value(value, key, "an object");
    read_group(value, key);
  }

  Run& run_;
  Problems& problems_;
};

// The keys inside the run file and those of the file beside it are one document; neither may repeat the other.
Json deepspeed_document(Json& run_file, const NamedText& beside) {
  Json document = take_deepspeed_keys(run_file);
  if (beside.name.empty()) return document;
  const Json file = base::parse_json(beside.text, beside.name, {.hjson = true, .max_bytes = kMostBytes});  // as DeepSpeed reads it
  if (!file.is_object()) base::bad_input("{}: found {}, expected an object with the keys of DeepSpeed", file.where(), file.describe());
  for (const JsonMember& member : file.as_object()) {
    if (const Json* other = document.find(member.key)) {
      base::bad_input("{}: found \"{}\", which {} gives as well; expected it once", file.where_key(member), member.key, other->where());
    }
    document.set(member.key, member.value);
  }
  return document;
}

}  // namespace

Run parse_run(std::string_view text, std::string_view name, const std::vector<std::string>& overrides, const NamedText& deepspeed,
              const std::vector<model::Family>& more_families) {
  Json document = base::parse_json(text, name, {.max_bytes = kMostBytes});
  if (!document.is_object())
    base::bad_input("{}: found {}, expected an object with the settings of a run", document.where(), document.describe());
  const Json deepspeed_keys = deepspeed_document(document, deepspeed);
  apply_overrides(document, overrides, more_families);
  Run run;
  run.name = name;
  run.more_families = more_families;
  const Json* model = document.find("model");
  start_model(model, run);
  if (model != nullptr && model->is_object()) {
    if (const Json* path = model->find("path")) read_field(*find_field("model.path"), *path, run);
  }
  Problems problems;
  Reader(run, problems).read_group(document, "");
  if (deepspeed_keys.size() > 0) DeepSpeedTranslation(deepspeed_keys, run, problems).translate();
  problems.raise();
  derive(run);
  check(run);
  return run;
}

Run load_run(const std::string& path, const std::vector<std::string>& overrides) {
  if (std::filesystem::is_directory(path)) base::bad_input("{}: found a directory, expected a run file", path);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) base::bad_input("{}: cannot be read ({}), expected a run file", path, std::strerror(errno));
  std::string text(kMostBytes + 1, '\0');  // one more than is allowed, so that a longer file is noticed
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) base::bad_input("{}: cannot be read ({}), expected a run file", path, std::strerror(errno));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_run(text, path, overrides);
}

void resolve_model(Run& run, const model::Model& from_path) {
  run.model = from_path;
  const Origin origin{.kind = OriginKind::model_path, .text = fmt::format("path {}", run.model_path)};
  const Origin path_origin = run.origin("model.path");
  set_model_origin(run, origin);
  run.origins["model"] = origin;
  run.origins["model.path"] = path_origin;
  if (run.model_overrides.is_object()) {
    for (const JsonMember& member : run.model_overrides.as_object()) read_field(*find_field("model." + member.key), member.value, run);
  }
  derive(run);
  check(run);
}

}  // namespace plimsoll::config
