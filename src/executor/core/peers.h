// The other ranks of a plan, as an executor's instructions meet them: collectives over the mesh's axes and messages between the
// places of the pipe axis, on memory that the transport sees.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>

#include "collectives/transport.h"
#include "plan/plan.h"

namespace plimsoll::executor {

class Peers {
 public:
  // One group for each axis with more than one rank: collectives of an axis run on one stream. Messages have a group for each
  // direction between two ranks: one stream sends in it, one receives. All ranks of a plan do this together.
  Peers(const plan::Plan& plan, std::int32_t rank, collectives::Transport* transport);

  struct Tensor {
    std::byte* data = nullptr;
    base::TensorType type;

    std::span<std::byte> bytes() const { return {data, static_cast<std::size_t>(type.bytes())}; }
  };

  // Of an all-reduce, what lies before `op.first` is neither read nor written.
  void run(const ops::Collective& op, const Tensor& from, const Tensor& to);
  void run(const ops::Message& op, std::int32_t micro_batch, std::span<std::byte> data);

  // Of an axis on which this rank has others; null else.
  collectives::Group* group(const ops::Axis& axis) const {
    const auto found = groups_.find(axis);
    return found == groups_.end() ? nullptr : found->second.get();
  }

 private:
  const plan::Mesh mesh_;
  const std::int32_t rank_;
  std::map<ops::Axis, std::unique_ptr<collectives::Group>> groups_;
  std::map<std::int32_t, std::unique_ptr<collectives::Group>> sending_;  // by the rank at the other end
  std::map<std::int32_t, std::unique_ptr<collectives::Group>> receiving_;
};

}  // namespace plimsoll::executor
