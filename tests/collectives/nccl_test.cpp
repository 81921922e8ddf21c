// What one GPU can show of NCCL: the fold on the device against the one on the host, bit for bit, and a world of one rank through every
// operation, by NCCL's sums and by canonical ones.
#include <gtest/gtest.h>

#include <cstring>

#include "collectives/cases.h"
#include "collectives/fold.h"
#include "collectives/nccl/device_fold.h"
#include "collectives/nccl/group.h"
#include "collectives/nccl/join_here.h"

namespace plimsoll::collectives {
namespace {

using base::DType;
using Bytes = std::vector<std::byte>;

// Gives a group of device memory the host memory of the cases.
class Staged final : public Group {
 public:
  explicit Staged(std::unique_ptr<Group> inner)
      : Group(inner->name(), {inner->members().begin(), inner->members().end()}, inner->rank()), inner_(std::move(inner)) {}
  Traffic traffic() const override { return inner_->traffic(); }

 private:
  using Run = std::function<void(Input, Output)>;
  // Runs with device copies of both; in place when they are.
  void with(Input in, Output out, const Run& run) {
    std::byte* device_in = in_.at_least(in.size() + 1);
    const bool inside = in.data() >= out.data() && in.data() <= out.data() + out.size() && !out.empty();
    const bool around = out.data() >= in.data() && out.data() <= in.data() + in.size() && !in.empty();
    std::byte* device_out = out_.at_least(out.size() + 1);
    if (around) device_out = device_in + (out.data() - in.data());
    if (inside && !around) device_in = device_out + (in.data() - out.data());
    nccl::check(cudaMemcpy(device_out, out.data(), out.size(), cudaMemcpyHostToDevice), "copy");
    nccl::check(cudaMemcpy(device_in, in.data(), in.size(), cudaMemcpyHostToDevice), "copy");
    run({device_in, in.size()}, {device_out, out.size()});
    nccl::check(cudaMemcpy(out.data(), device_out, out.size(), cudaMemcpyDeviceToHost), "copy");
  }
  void do_all_reduce(const Call& c, Input in, Output out) override {
    with(in, out, [&](Input i, Output o) { inner_->all_reduce(i, o, c.dtype, c.reduction); });
  }
  void do_reduce_scatter(const Call& c, Input in, Output out, Counts counts) override {
    with(in, out, [&](Input i, Output o) { inner_->reduce_scatter(i, o, counts, c.dtype, c.reduction); });
  }
  void do_all_gather(const Call& c, Input in, Output out, Counts counts) override {
    with(in, out, [&](Input i, Output o) { inner_->all_gather(i, o, counts, c.dtype); });
  }
  void do_broadcast(const Call& c, Output data) override {
    with(data, data, [&](Input, Output o) { inner_->broadcast(o, c.dtype, c.other); });
  }
  void do_reduce(const Call& c, Input in, Output out) override {
    with(in, out, [&](Input i, Output o) { inner_->reduce(i, o, c.dtype, c.reduction, c.other); });
  }
  void do_all_to_all(const Call& c, Input in, Counts in_counts, Output out, Counts out_counts) override {
    with(in, out, [&](Input i, Output o) { inner_->all_to_all(i, in_counts, o, out_counts, c.dtype); });
  }
  void do_barrier(const Call&) override { inner_->barrier(); }
  void do_send(const Call&, Input) override {}
  void do_receive(const Call&, Output) override {}

  std::unique_ptr<Group> inner_;
  nccl::DeviceBuffer in_, out_;
};

class StagedTransport final : public Transport {
 public:
  explicit StagedTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string description() const override { return inner_->description(); }
  std::unique_ptr<Group> make_group(std::span<const int> ranks, std::string name) override {
    return std::make_unique<Staged>(inner_->make_group(ranks, std::move(name)));
  }
  void abort(const std::string& reason, base::ErrorKind kind) override { inner_->abort(reason, kind); }

 private:
  std::unique_ptr<Transport> inner_;
};

TEST(Nccl, ADevicesFoldEqualsTheHosts) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8}) {
    for (const Reduction reduction : {Reduction::sum, Reduction::mean, Reduction::max}) {
      if (reduction == Reduction::mean && !base::is_float(dtype)) continue;
      for (const int members : {1, 2, 3, 8}) {
        const std::int64_t count = 100003;
        std::vector<Bytes> inputs;
        std::vector<std::unique_ptr<nccl::DeviceBuffer>> buffers;
        std::vector<const std::byte*> host, device;
        for (int member = 0; member < members; ++member) {
          inputs.push_back(tests::input_of(member, count, dtype, 5));
          buffers.push_back(std::make_unique<nccl::DeviceBuffer>());
          std::byte* memory = buffers.back()->at_least(inputs.back().size());
          nccl::check(cudaMemcpy(memory, inputs.back().data(), inputs.back().size(), cudaMemcpyHostToDevice), "copy");
          device.push_back(memory);
        }
        for (const Bytes& input : inputs) host.push_back(input.data());
        Bytes expected(inputs[0].size()), found(inputs[0].size());
        std::byte* const host_out[] = {expected.data()};
        std::byte* const device_out[] = {const_cast<std::byte*>(device[0])};
        nccl::DeviceBuffer pointers;
        fold({.in = host, .out = host_out, .count = count, .dtype = dtype, .reduction = reduction, .members = members});
        nccl::device_fold({.in = device, .out = device_out, .count = count, .dtype = dtype, .reduction = reduction, .members = members},
                          reinterpret_cast<const std::byte**>(pointers.at_least(64)), nullptr);
        nccl::check(cudaMemcpy(found.data(), device[0], found.size(), cudaMemcpyDeviceToHost), "copy");
        EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size()), 0)
            << base::name_of(dtype) << ' ' << name_of(reduction) << ' ' << members;
      }
    }
  }
}

TEST(Nccl, OneRankDoesEveryOperation) {
  for (const bool canonical : {false, true}) {
    StagedTransport transport(nccl::join_here({}, {.canonical = canonical}));
    EXPECT_NO_THROW(tests::run_cases(transport, {.lengths = {0, 1, 7, 1025, 300000}})) << canonical;
    EXPECT_NO_THROW(tests::run_random(transport, 100, 3)) << canonical;
  }
}

}  // namespace
}  // namespace plimsoll::collectives
