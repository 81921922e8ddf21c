// Which codec a run uses for what it sends, as plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace plimsoll::codecs {

struct Codec;

// What a codec is asked for in a run file: "communication.gradients" and so on.
enum class Use : std::uint8_t {
  gradients,    // of data ranks
  weights,      // that ZeRO 3 gathers
  activations,  // of tensor ranks, and between the stages of a pipeline; their gradients too
};

inline constexpr std::size_t kMostNumbers = 4;
// A codec's settings, by place in its list.
using Numbers = std::array<double, kMostNumbers>;

struct Choice {
  const Codec* codec = nullptr;  // nullptr: all is sent as it is
  Numbers numbers{};

  bool any() const { return codec != nullptr; }
  bool operator==(const Choice&) const = default;
};

struct Choices {
  Choice gradients{};
  Choice weights{};
  Choice activations{};

  bool any() const { return gradients.any() || weights.any() || activations.any(); }
  bool operator==(const Choices&) const = default;
};

}  // namespace plimsoll::codecs
