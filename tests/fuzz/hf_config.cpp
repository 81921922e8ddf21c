// Hugging Face configurations: whatever is accepted names tensors without overflow and comes back as the same model.
#include "formats/hf_config.h"

#include <cstdlib>

#include "base/error.h"
#include "families/families.h"
#include "formats/hf_names.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll;
  constexpr std::int64_t kSmall = 1000;
  base::Json config;
  model::Model model;
  try {
    config = base::parse_json({reinterpret_cast<const char*>(data), size}, "config.json", {.strict = true});
    model = formats::model_from_hf_config(config);
  } catch (const base::Error&) {
    return 0;
  }
  if (families::parameter_count(model) <= 0) std::abort();
  if (model.layers * model.kv_heads < kSmall) {
    for (const formats::HfTensor& tensor : formats::hf_names(model).tensors) {
      if (tensor.shape.empty() || tensor.parts.empty()) std::abort();
    }
  }
  if (!(formats::model_from_hf_config(formats::hf_config_from_model(model, config, formats::FileDType::f32)) == model)) std::abort();
  return 0;
}
