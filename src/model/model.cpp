#include "model/model.h"

namespace plimsoll::model {

std::string_view name_of(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::gelu_tanh: return "gelu_tanh";
    case ActivationKind::gelu_erf: return "gelu_erf";
    case ActivationKind::relu: return "relu";
    case ActivationKind::silu: return "silu";
  }
  return "?";
}

}  // namespace plimsoll::model
