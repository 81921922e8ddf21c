// A model family: a row that says everything the rest of the system asks about an architecture. A family is one folder beside this file and
// a row in all.h; code elsewhere hands in a row of its own by pointing a model at it (tests/extending).
//
// Nobody compares families: what they differ in is a fact of the row.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "families/file_config.h"
#include "families/file_names.h"
#include "graph/builder.h"
#include "model/model.h"

namespace plimsoll::families {

// What a sample of the training data holds, and so what reads it.
enum class Samples {
  next_token,     // tokens, of which each predicts the next: the model can continue a text
  masked_tokens,  // tokens, of which some are hidden and must be told from the others
  numbers,        // a row of numbers
};

// A setting that only this family has; its value is in model.own. Settings that several share are members of model::Model, and their
// ranges are those of the run file's table (config/fields_model.cpp).
struct Setting {
  enum class Kind { integer, number, flag, choice, integers };

  std::string key;    // below "model."
  std::string about;  // one sentence for the documentation
  Kind kind = Kind::integer;
  base::Json otherwise = {};  // the default
  double min = 1.0;           // of numbers, of each where it is a list
  double max = 1e6;
  std::vector<std::string> choices = {};
};

// The value that a shared setting has where others are given and it is not.
struct Derived {
  std::string_view key;
  std::vector<std::string_view> from;  // what must be given; one of them
  std::string_view how;                // for people: "4 x width"
  base::Json (*value)(const model::Model& model);
  bool in_presets = true;  // false: a preset's own value stays
};

// Of models that read numbers: how many of a row's columns are to be predicted, and, where it is one class, of how many.
struct Targets {
  std::int64_t columns = 1;
  std::int64_t classes = 0;  // 0: they are numbers
};

struct Preset {
  std::string_view name;
  model::Model (*make)();
};

struct Family {
  std::string_view name;
  Samples samples = Samples::next_token;
  // The shared settings that it goes by, by their keys below "model.". Others are accepted with their default value only.
  std::vector<std::string_view> settings = {};
  std::vector<Setting> own = {};                    // (optional)
  std::vector<Derived> derived = {};                // (optional)
  std::vector<Preset> presets = {};                 // (optional)
  void (*defaults)(model::Model& model) = nullptr;  // (optional) sets what differs from model::Model's and own defaults
  // (optional) Why a description is no such model, each with the field, what was found and what was expected.
  void (*problems)(const model::Model& model, std::vector<std::string>& found) = nullptr;
  // Writes the forward pass.
  void (*build)(const model::Model& model, graph::Builder& build) = nullptr;
  Targets (*targets)(const model::Model& model) = nullptr;          // of models that read numbers
  std::int64_t (*parameters)(const model::Model& model) = nullptr;  // (optional) without it they are counted in the graph
  std::optional<Files> files = {};                                  // (optional) names and keys in Hugging Face folders
  // All blocks but the first and the last are alike, model.layers of them: they are priced once, and a strategy can be searched for.
  bool alike = true;

  bool has(std::string_view setting) const;
  bool continues_text() const { return samples == Samples::next_token; }
  bool masks() const { return samples == Samples::masked_tokens; }
};

}  // namespace plimsoll::families
