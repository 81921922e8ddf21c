// Finding an executor's buffers by name.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "executor/core/executor.h"

namespace plimsoll::train {

class Buffers {
 public:
  explicit Buffers(executor::Executor& executor);

  bool has(const std::string& name) const { return by_name_.contains(name); }
  // The buffers that hold what this rank has of a tensor: one of its name, or its tiles in their order; none where others have it.
  std::vector<std::string> holding(const std::string& tensor) const;
  const plan::Buffer& buffer(const std::string& name) const;
  // Stops when there is no such buffer, or when its element type is not T's.
  template <typename T>
  std::span<T> view(const std::string& name, plan::Access access = plan::Access::update) const {
    const plan::Buffer& found = buffer(name);
    return {reinterpret_cast<T*>(bytes(name, access)), static_cast<std::size_t>(found.bytes.count) / sizeof(T)};
  }
  // For the access see Executor::host_view.
  std::byte* bytes(const std::string& name, plan::Access access = plan::Access::update) const;
  // On a drive, without a view; see Executor::read.
  bool on_disk(const std::string& name) const { return buffer(name).tier == plan::Tier::disk; }
  bool in_host_memory(const std::string& name) const { return executor_.is_in_host_memory(find(name)); }
  void read(const std::string& name, std::int64_t first, std::span<std::byte> out) const { executor_.read(find(name), first, out); }
  void write(const std::string& name, std::int64_t first, std::span<const std::byte> data) const {
    executor_.write(find(name), first, data);
  }
  // Values from element `first` on, in the buffer's type, wherever it is.
  void put(const std::string& name, std::int64_t first, std::span<const float> values) const;
  // All of it, wherever it is.
  std::vector<std::byte> copy(const std::string& name) const;
  // Which part of which whole tensor the buffer holds; of one that is not shared, all of it.
  ops::Part part(const std::string& name) const;
  std::int64_t data_place() const { return executor_.data_place(); }
  // The elements of a parameter, master or state that this rank holds, without padding.
  ops::ElementRange held(const std::string& name) const { return ops::held_by(part(name), data_place()); }

 private:
  plan::BufferId find(const std::string& name) const;

  executor::Executor& executor_;
  std::unordered_map<std::string, plan::BufferId> by_name_;
};

// Buffers that hold a tensor in tiles are named after it, with the tile's number: "blocks.0.ffn.up.weight#3".
std::string tile_buffer(std::string_view tensor, std::size_t tile);

// The tensor that a buffer holds all or a tile of.
std::string tensor_of_buffer(std::string_view buffer);

// The name of a program's own buffer of a micro-batch, such as an input: "train/tokens@3".
std::string program_buffer(std::string_view program, std::string_view value, std::int32_t micro_batch);

}  // namespace plimsoll::train
