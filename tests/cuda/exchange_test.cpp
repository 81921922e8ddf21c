// Collectives of threads that share a GPU against the same collectives of the group on the host: same bits, whatever the type, the
// length and the place of the result.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "collectives/local/threads.h"
#include "executor/cuda/direct_exchange.h"
#include "kernels/cuda/checks.h"

namespace plimsoll::executor {
namespace {

using base::DType;
using base::Shape;
using kernels::cuda::check;
using kernels::cuda::Tensor;
using ops::CollectiveKind;
using Bytes = std::vector<std::byte>;

class DeviceBytes {
 public:
  explicit DeviceBytes(const Bytes& values) : bytes_(values.size()) {
    check(cudaMalloc(&data_, std::max<std::size_t>(bytes_, 1)), "cudaMalloc");
    check(cudaMemcpy(data_, values.data(), bytes_, cudaMemcpyHostToDevice), "upload");
  }
  ~DeviceBytes() { cudaFree(data_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  Bytes values() const {
    Bytes values(bytes_);
    check(cudaMemcpy(values.data(), data_, bytes_, cudaMemcpyDeviceToHost), "download");
    return values;
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

// Of every size class a type has, but no NaN: its bits are not promised.
Bytes random_floats(DType dtype, std::int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, 10.0f);
  Bytes bytes(static_cast<std::size_t>(count * base::size_of(dtype)));
  for (std::int64_t index = 0; index < count; ++index) {
    const float value = normal(generator);
    const std::uint16_t half = dtype == DType::bf16 ? base::bf16_from_f32(value) : base::f16_from_f32(value);
    if (dtype == DType::f32) {
      std::memcpy(bytes.data() + index * 4, &value, 4);
    } else {
      std::memcpy(bytes.data() + index * 2, &half, 2);
    }
  }
  return bytes;
}

struct Sizes {
  std::int64_t in;
  std::int64_t out;
};

Sizes sizes_of(CollectiveKind kind, std::int64_t part, std::int64_t members) {
  switch (kind) {
    case CollectiveKind::reduce_scatter: return {part * members, part};
    case CollectiveKind::all_gather: return {part, part * members};
    case CollectiveKind::all_to_all: return {part * members, part * members};
    default: return {part, part};
  }
}

// What the group on the host makes of the same operands.
Bytes on_host(collectives::Group& group, CollectiveKind kind, const Bytes& in, Sizes sizes, DType dtype) {
  const bool exchanges = kind == CollectiveKind::all_to_all;
  const std::int64_t smaller = std::min(sizes.in, sizes.out);
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(group.size()), exchanges ? smaller / group.size() : smaller);
  Bytes out(static_cast<std::size_t>(sizes.out * base::size_of(dtype)));
  if (in.size() == out.size()) out = in;
  switch (kind) {
    case CollectiveKind::all_reduce: group.all_reduce(in, out, dtype, collectives::Reduction::sum); break;
    case CollectiveKind::reduce_scatter: group.reduce_scatter(in, out, counts, dtype, collectives::Reduction::sum); break;
    case CollectiveKind::all_gather: group.all_gather(in, out, counts, dtype); break;
    case CollectiveKind::reduce: group.reduce(in, out, dtype, collectives::Reduction::sum, 0); break;
    case CollectiveKind::broadcast: group.broadcast(out, dtype, 0); break;
    case CollectiveKind::all_to_all: group.all_to_all(in, counts, out, counts, dtype); break;
  }
  return out;
}

void check_kind(collectives::Group& group, DirectExchange& direct, CollectiveKind kind, DType dtype, std::int64_t part, bool in_place) {
  const Sizes sizes = sizes_of(kind, part, group.size());
  const ops::Collective op{.kind = kind, .members = group.size(), .in_place = in_place};
  const Bytes in = random_floats(dtype, sizes.in, 100u * static_cast<unsigned>(group.rank()) + static_cast<unsigned>(part));
  const Bytes expected = on_host(group, kind, in, sizes, dtype);
  const std::size_t shard = static_cast<std::size_t>(group.rank()) * std::min(in.size(), expected.size());
  // In place the smaller of the two is this rank's shard of the larger.
  Bytes memory(std::max(in.size(), expected.size()), std::byte{0xFF});
  const std::size_t in_at = in_place && in.size() < memory.size() ? shard : 0;
  std::copy(in.begin(), in.end(), memory.begin() + static_cast<std::ptrdiff_t>(in_at));
  const DeviceBytes operand(memory);
  const DeviceBytes apart(in.size() == expected.size() ? in : expected);
  const bool same_place = kind != CollectiveKind::all_to_all && (in_place || in.size() == expected.size());
  std::byte* out = same_place ? operand.data() + (expected.size() < memory.size() ? shard : 0) : apart.data();
  const Stream stream = make_stream();
  check(cudaDeviceSynchronize(), "uploads");
  direct.run(op, {operand.data() + in_at, {dtype, Shape{sizes.in}}}, {out, {dtype, Shape{sizes.out}}}, stream.get());
  check(cudaStreamSynchronize(stream.get()), "collective");
  Bytes found(expected.size());
  check(cudaMemcpy(found.data(), out, found.size(), cudaMemcpyDeviceToHost), "download");
  EXPECT_TRUE(found == expected) << ops::name_of(kind) << " of " << part << " " << base::name_of(dtype) << (in_place ? " in place" : "")
                                 << ", rank " << group.rank() << " of " << group.size();
}

TEST(DirectExchange, HasTheBitsOfTheHostsCollectives) {
  for (const int ranks : {2, 3, 8}) {
    collectives::local::run_threads(ranks, [&](collectives::Transport& transport) {
      const std::unique_ptr<collectives::Group> group = transport.make_world("all");
      const std::unique_ptr<DirectExchange> direct = DirectExchange::make(*group, 0);
      ASSERT_NE(direct, nullptr);
      for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather,
                                        CollectiveKind::reduce, CollectiveKind::broadcast, CollectiveKind::all_to_all}) {
        for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
          for (const std::int64_t part : {1, 7, 64, 4097}) {
            if (kind != CollectiveKind::all_to_all) check_kind(*group, *direct, kind, dtype, part, true);
            check_kind(*group, *direct, kind, dtype, part, false);
          }
        }
      }
    });
  }
}

// Many in a row on running streams: events and memory are used again and again.
TEST(DirectExchange, ManyInARow) {
  constexpr int kRanks = 4;
  constexpr std::int64_t kCount = 100'000;
  collectives::local::run_threads(kRanks, [&](collectives::Transport& transport) {
    const std::unique_ptr<collectives::Group> group = transport.make_world("all");
    const std::unique_ptr<DirectExchange> direct = DirectExchange::make(*group, 0);
    std::vector<float> ones(kCount, 1.0f);
    const std::span<const std::byte> bytes = std::as_bytes(std::span(ones));
    const DeviceBytes operand(Bytes(bytes.begin(), bytes.end()));
    const Tensor tensor{operand.data(), {DType::f32, Shape{kCount}}};
    const Stream stream = make_stream();
    check(cudaDeviceSynchronize(), "upload");
    for (int turn = 0; turn < 20; ++turn)
      direct->run({.kind = CollectiveKind::all_reduce, .members = kRanks}, tensor, tensor, stream.get());
    check(cudaStreamSynchronize(stream.get()), "collectives");
    const Bytes after = operand.values();
    std::memcpy(ones.data(), after.data(), after.size());
    for (const float value : ones) ASSERT_EQ(value, 0x1p40f);  // 4^20
  });
}

}  // namespace
}  // namespace plimsoll::executor
