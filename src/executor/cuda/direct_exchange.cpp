#include "executor/cuda/direct_exchange.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/fold.h"

namespace plimsoll::executor {

using kernels::cuda::check;

namespace {

// Shares of an all-reduce start at multiples of this, so that they stay aligned.
constexpr std::int64_t kShareUnit = 64;

template <typename Item>
std::vector<Item> gather(collectives::Group& group, const Item& own) {
  std::vector<Item> all(static_cast<std::size_t>(group.size()));
  const std::vector<std::int64_t> counts(all.size(), sizeof(Item));
  group.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)), counts, base::DType::u8);
  return all;
}

bool sums(ops::CollectiveKind kind) {
  return kind == ops::CollectiveKind::all_reduce || kind == ops::CollectiveKind::reduce_scatter || kind == ops::CollectiveKind::reduce;
}

}  // namespace

std::unique_ptr<DirectExchange> DirectExchange::make(collectives::Group& group, int device) {
  struct Home {
    std::int64_t process;
    std::int64_t device;
  };
  const Home own{getpid(), device};
  const std::vector<Home> homes = gather(group, own);
  const bool together =
      std::all_of(homes.begin(), homes.end(), [&](const Home& home) { return home.process == own.process && home.device == own.device; });
  if (!together || group.size() > kernels::cuda::kMostFolded) return nullptr;
  return std::unique_ptr<DirectExchange>(new DirectExchange(group));
}

DirectExchange::DirectExchange(collectives::Group& group) : group_(group), ready_(make_event()), done_(make_event()) {}

bool DirectExchange::takes(const ops::Collective& op, base::DType dtype) {
  // Uneven parts and sums of a tensor's end are small work for the host.
  if (op.first > 0 || op.rows % op.members != 0) return false;
  return !sums(op.kind) || dtype == base::DType::f32 || dtype == base::DType::bf16 || dtype == base::DType::f16;
}

std::vector<DirectExchange::Offer> DirectExchange::show(const Offer& own) const {
  std::vector<Offer> offers = gather(group_, own);
  for (int member = 0; member < group_.size(); ++member) {
    const Offer& other = offers[static_cast<std::size_t>(member)];
    PLIMSOLL_CHECK(other.kind == own.kind && other.bytes == own.bytes, "[{}] rank {} asks for {} of {} bytes, rank {} for {} of {} bytes",
                   group_.name(), group_.rank(), ops::name_of(own.kind), own.bytes, member, ops::name_of(other.kind), other.bytes);
  }
  return offers;
}

// The last meeting: nobody records its events again, or destroys them, before all others have issued their waits.
void DirectExchange::run(const ops::Collective& op, const kernels::cuda::Tensor& in, const kernels::cuda::Tensor& out,
                         cudaStream_t stream) {
  check(cudaEventRecord(ready_.get(), stream), "cudaEventRecord");
  const std::vector<Offer> offers = show({.in = in.as<std::byte>(),
                                          .out = out.as<std::byte>(),
                                          .bytes = in.type.bytes(),
                                          .ready = ready_.get(),
                                          .done = done_.get(),
                                          .kind = op.kind});
  for (const Offer& offer : offers) check(cudaStreamWaitEvent(stream, offer.ready, 0), "cudaStreamWaitEvent");
  work(op, offers, in, out, stream);
  check(cudaEventRecord(done_.get(), stream), "cudaEventRecord");
  group_.barrier();
  for (const Offer& offer : offers) check(cudaStreamWaitEvent(stream, offer.done, 0), "cudaStreamWaitEvent");
  group_.barrier();
}

void DirectExchange::work(const ops::Collective& op, const std::vector<Offer>& offers, const kernels::cuda::Tensor& in,
                          const kernels::cuda::Tensor& out, cudaStream_t stream) const {
  const std::int64_t members = group_.size();
  const std::int64_t rank = group_.rank();
  const std::int64_t size = base::size_of(in.type.dtype);
  // Elements [first, first + count) of everybody's input, to [to, to + count) of the results of members [begin, end).
  const auto fold = [&](std::int64_t first, std::int64_t count, std::int64_t to, std::int64_t begin, std::int64_t end) {
    kernels::cuda::Fold work{.inputs = static_cast<int>(members), .outputs = 0, .count = count, .dtype = in.type.dtype};
    for (std::int64_t member = 0; member < members; ++member) work.in[member] = offers[static_cast<std::size_t>(member)].in + first * size;
    for (std::int64_t member = begin; member < end; ++member)
      work.out[work.outputs++] = offers[static_cast<std::size_t>(member)].out + to * size;
    kernels::cuda::launch_fold(work, stream);
  };
  const auto copy = [&](const std::byte* from, std::byte* to, std::int64_t bytes) {
    if (from == to) return;
    check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream), "a collective's copy");
  };
  switch (op.kind) {
    case ops::CollectiveKind::all_reduce: {
      const std::int64_t elements = in.type.shape.elements();
      const std::int64_t share = (elements / members / kShareUnit + 1) * kShareUnit;
      const std::int64_t first = std::min(elements, rank * share);
      return fold(first, std::min(elements, first + share) - first, first, 0, members);
    }
    case ops::CollectiveKind::reduce_scatter: {
      const std::int64_t count = out.type.shape.elements();
      return fold(rank * count, count, 0, rank, rank + 1);
    }
    case ops::CollectiveKind::reduce:
      if (rank == 0) fold(0, in.type.shape.elements(), 0, 0, 1);
      return;
    case ops::CollectiveKind::all_gather:
      for (std::int64_t member = 0; member < members; ++member)
        copy(offers[static_cast<std::size_t>(member)].in, out.as<std::byte>() + member * in.type.bytes(), in.type.bytes());
      return;
    case ops::CollectiveKind::broadcast: return copy(offers[0].out, out.as<std::byte>(), out.type.bytes());
    case ops::CollectiveKind::all_to_all: {
      const std::int64_t part = in.type.bytes() / members;
      for (std::int64_t member = 0; member < members; ++member)
        copy(offers[static_cast<std::size_t>(member)].in + rank * part, out.as<std::byte>() + member * part, part);
      return;
    }
  }
}

}  // namespace plimsoll::executor
