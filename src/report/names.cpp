#include "report/names.h"

namespace plimsoll::report {

std::string_view plural_of(plan::BufferKind kind) {
  switch (kind) {
    case plan::BufferKind::parameter: return "parameters";
    case plan::BufferKind::master: return "masters";
    case plan::BufferKind::state: return "states";
    case plan::BufferKind::constant: return "constants";
    case plan::BufferKind::scalars: return "scalars";
    case plan::BufferKind::input: return "inputs";
    case plan::BufferKind::gradient: return "gradients";
    case plan::BufferKind::activation: return "activations";
    case plan::BufferKind::result: return "results";
    case plan::BufferKind::frame: return "working";
    case plan::BufferKind::stash: return "stashed";
  }
  return "?";
}

std::string label_at(const plan::Program& program, std::int32_t moment) {
  for (const plan::Stream& stream : program.streams) {
    for (const plan::Call& call : stream.calls) {
      if (call.moment == moment) return call.label.text();
    }
  }
  return "?";
}

std::string tinted(std::string_view text, std::string_view code, bool color) {
  return color ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

}  // namespace plimsoll::report
