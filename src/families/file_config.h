// What a family says of Hugging Face folders, and what it reads the keys of a config.json with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "families/file_names.h"
#include "model/model.h"

namespace plimsoll::families {

// A kind of configuration that describes models of the family.
struct FileKind {
  std::string_view type;          // "model_type"
  std::string_view architecture;  // with the head that we train
};

struct Files {
  std::string_view prefix;      // of tensors of the base model, unless it was saved bare, without the head around it
  std::string_view base_class;  // of transformers, that loads the body alone
  // A model without a configuration of its own takes the first that can describe it.
  std::vector<FileKind> kinds;
  model::Model (*read)(std::string_view type, const base::Json& config);
  void (*write)(std::string_view type, const model::Model& model, base::Json& config);
  bool (*describes)(std::string_view type, const model::Model& model);
  // Why no kind can, where none can: for people.
  std::string (*beyond)(const model::Model& model);
  void (*names)(const model::Model& model, Collector& out);
  // Tensors that files hold but that no training needs. `name` is without the prefix.
  bool (*known_buffer)(std::string_view name);
  // Where nobody says what begins and ends a text: sets it and returns true, or leaves it to be null. (optional)
  bool (*usual_ends)(const model::Model& model, base::Json& config) = nullptr;
  bool passengers = false;  // they may hold tensors that nobody computes with (HfPassenger)
};

// Python writes null for "not set", which is the same as absent.
class ConfigReader {
 public:
  explicit ConfigReader(const base::Json& json) : json_(json) {}

  const base::Json* find(std::string_view key) const;
  // Sizes are at least 1 and believable: they keep every product of some within 64 bits.
  std::int64_t count(std::string_view key) const;
  std::int64_t count(std::string_view key, std::int64_t otherwise) const;
  double number(std::string_view key, double otherwise) const { return find(key) ? find(key)->as_double() : otherwise; }
  bool flag(std::string_view key, bool otherwise) const { return find(key) ? find(key)->as_bool() : otherwise; }
  std::string text(std::string_view key, std::string_view otherwise) const {
    return find(key) ? find(key)->as_string() : std::string(otherwise);
  }
  // As torch counts: negative ones from the end of the vocabulary.
  std::int64_t pad_token(std::int64_t vocab, std::int64_t otherwise) const;
  void require(std::string_view key, bool value, std::string_view why) const;
  model::ActivationKind activation(std::string_view key, std::string_view otherwise) const;

 private:
  const base::Json& json_;
};

std::int64_t head_dim_in(const base::Json& config, const model::Model& model);

std::string_view file_name_of(model::ActivationKind kind);
// Keys that configurations share since BERT's.
void set_common_keys(const model::Model& model, base::Json& config);

}  // namespace plimsoll::families
