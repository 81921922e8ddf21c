#include "cuda/device_case.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "kernels/cuda/checks.h"

namespace plimsoll::op_cases {

namespace {

namespace cuda = kernels::cuda;

constexpr std::byte kGuardByte{0xA5};
constexpr std::byte kPoison{0xFF};  // NaN in every float type, -1 in every integer type
constexpr std::int64_t kGuard = 256;
constexpr std::int64_t kAlignment = 64;

// Where the operands of a case lie, and what is there before the kernel runs.
class Layout {
 public:
  std::int64_t place(std::int64_t bytes, const Bytes* contents = nullptr) {
    const std::int64_t start = (static_cast<std::int64_t>(image_.size()) + kGuard + kAlignment - 1) / kAlignment * kAlignment;
    image_.resize(static_cast<std::size_t>(start), kGuardByte);
    if (contents != nullptr) {
      image_.insert(image_.end(), contents->begin(), contents->end());
    } else {
      image_.resize(static_cast<std::size_t>(start + bytes), kPoison);
    }
    pieces_.push_back({start, bytes});
    return start;
  }
  void close() { image_.resize(image_.size() + kGuard, kGuardByte); }

  Bytes& image() { return image_; }

  void expect_guards(const Bytes& after) const {
    std::int64_t from = 0;
    for (std::size_t piece = 0; piece <= pieces_.size(); ++piece) {
      const std::int64_t to = piece < pieces_.size() ? pieces_[piece].start : static_cast<std::int64_t>(after.size());
      EXPECT_TRUE(std::all_of(after.begin() + from, after.begin() + to, [](std::byte value) { return value == kGuardByte; }))
          << "written outside operand or scratch, before piece " << piece;
      if (piece < pieces_.size()) from = to + pieces_[piece].bytes;
    }
  }

 private:
  struct Piece {
    std::int64_t start;
    std::int64_t bytes;
  };
  Bytes image_;
  std::vector<Piece> pieces_;
};

}  // namespace

DeviceMemory::DeviceMemory(std::int64_t bytes) : bytes_(bytes) {
  cuda::check(cudaMalloc(reinterpret_cast<void**>(&data_), static_cast<std::size_t>(bytes)), "cudaMalloc");
}

DeviceMemory::~DeviceMemory() { cudaFree(data_); }

std::vector<Bytes> run_on_device(const cuda::Kernel& kernel, const Case& test, const std::vector<Bytes>& inputs, const DeviceMemory& memory,
                                 const DeviceRunOptions& options) {
  const std::vector<TensorType> input_types = test.input_types();
  const std::vector<TensorType> output_types = test.output_types();
  const ops::KernelQuery query{test.op, input_types, output_types, 1, options.deterministic};

  Layout layout;
  std::vector<std::int64_t> input_at;
  for (std::size_t i = 0; i < inputs.size(); ++i) input_at.push_back(layout.place(input_types[i].bytes(), &inputs[i]));
  std::vector<bool> overwritten(inputs.size(), false);
  std::vector<std::int64_t> output_at(output_types.size(), -1);
  for (const ops::Alias& alias : ops::aliases_of(test.op)) {
    if (!alias.required && !options.share) continue;
    output_at[static_cast<std::size_t>(alias.output)] = input_at[static_cast<std::size_t>(alias.input)];
    overwritten[static_cast<std::size_t>(alias.input)] = true;
  }
  for (std::size_t o = 0; o < output_types.size(); ++o) {
    if (output_at[o] < 0) output_at[o] = layout.place(output_types[o].bytes());
  }
  const std::int64_t workspace = kernel.workspace != nullptr ? kernel.workspace(query) : 0;
  const std::int64_t workspace_at = layout.place(workspace);
  layout.close();

  const auto size = layout.image().size();
  EXPECT_LE(static_cast<std::int64_t>(size), memory.bytes());
  if (static_cast<std::int64_t>(size) > memory.bytes()) return {};
  std::vector<cuda::Tensor> input_tensors;
  for (std::size_t i = 0; i < inputs.size(); ++i) input_tensors.push_back({memory.data() + input_at[i], input_types[i]});
  std::vector<cuda::Tensor> output_tensors;
  for (std::size_t o = 0; o < output_types.size(); ++o) output_tensors.push_back({memory.data() + output_at[o], output_types[o]});

  const cuda::Prepared prepared = kernel.prepare != nullptr ? kernel.prepare(query) : nullptr;
  cuda::check(cudaMemcpy(memory.data(), layout.image().data(), size, cudaMemcpyHostToDevice), "upload");
  kernel.launch({test.op, input_tensors, output_tensors, memory.data() + workspace_at, prepared.get()}, nullptr);
  Bytes after(size);
  cuda::check(cudaMemcpy(after.data(), memory.data(), size, cudaMemcpyDeviceToHost), "download");

  layout.expect_guards(after);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_TRUE(overwritten[i] || std::equal(inputs[i].begin(), inputs[i].end(), after.begin() + input_at[i]))
        << "input " << i << " was changed";
  }
  std::vector<Bytes> outputs;
  for (std::size_t o = 0; o < output_types.size(); ++o) {
    outputs.emplace_back(after.begin() + output_at[o], after.begin() + output_at[o] + output_types[o].bytes());
  }
  return outputs;
}

}  // namespace plimsoll::op_cases
