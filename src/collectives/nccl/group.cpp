#include "collectives/nccl/group.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collectives/nccl/device_fold.h"

namespace plimsoll::collectives::nccl {

namespace {

constexpr std::size_t kPiece = std::size_t{4} << 20;  // bytes of one member's part in one round of a canonical sum

ncclDataType_t type_of(base::DType dtype) {
  switch (dtype) {
    case base::DType::f32: return ncclFloat32;
    case base::DType::bf16: return ncclBfloat16;
    case base::DType::f16: return ncclFloat16;
    case base::DType::i32: return ncclInt32;
    case base::DType::i64: return ncclInt64;
    default: return ncclUint8;
  }
}

ncclRedOp_t rule_of(Reduction reduction) {
  return reduction == Reduction::sum ? ncclSum : reduction == Reduction::mean ? ncclAvg : ncclMax;
}

bool even(Counts counts) { return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end(); }

}  // namespace

NcclGroup::NcclGroup(std::string name, std::vector<int> ranks, int member, std::string key, std::shared_ptr<Meeting> meeting)
    : Group(std::move(name), std::move(ranks), member),
      key_(std::move(key)),
      meeting_(std::move(meeting)),
      channels_([&] {
        std::array<std::unique_ptr<Channel>, 3> made;
        for (int channel = 0; channel < (size() == 1 ? 1 : 3); ++channel) {
          made[static_cast<std::size_t>(channel)] =
              std::make_unique<Channel>(*meeting_, shared_id(channel), size(), member, [this] { return complain(); });
        }
        return made;
      }()),
      all_(*channels_[0]) {}

NcclGroup::~NcclGroup() {
  for (Sent& sent : under_way_) {
    cudaEventSynchronize(sent.done);
    cudaEventDestroy(sent.done);
  }
}

// The first member makes it, the others read it.
ncclUniqueId NcclGroup::shared_id(int channel) {
  ncclUniqueId id{};
  const std::string key = fmt::format("{} channel {}", key_, channel);
  if (rank() == 0) {
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    if (meeting_->rendezvous) meeting_->rendezvous->set(key, std::string(id.internal, sizeof id.internal));
    return id;
  }
  const std::string text = meeting_->rendezvous->wait(key);
  PLIMSOLL_CHECK(text.size() == sizeof id.internal, "an id of {} bytes", text.size());
  std::memcpy(id.internal, text.data(), text.size());
  return id;
}

// Something does not complete: members tell each other what they are in, and whoever differs is named.
std::string NcclGroup::complain() {
  std::string text =
      fmt::format("rank {} waited in vain in {} of group '{}'", members()[static_cast<std::size_t>(rank())], to_text(current_), name());
  if (!meeting_->rendezvous) return text;
  const auto key = [&](int member) { return fmt::format("{} in {}", key_, member); };
  meeting_->rendezvous->set(key(rank()), to_text(current_));
  std::this_thread::sleep_for(std::chrono::seconds(1));  // members that wait as well come to say so
  std::vector<std::string> others;
  for (int member = 0; member < size(); ++member) {
    const auto said = meeting_->rendezvous->get(key(member));
    if (!said) others.push_back(fmt::format("rank {} is not waiting", members()[static_cast<std::size_t>(member)]));
    if (said && *said != to_text(current_))
      others.push_back(fmt::format("rank {} is in {}", members()[static_cast<std::size_t>(member)], *said));
  }
  return others.empty() ? text : fmt::format("{} ({})", text, fmt::join(others, ", "));
}

bool NcclGroup::on_host(const void* memory) {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeUnregistered || attributes.type == cudaMemoryTypeHost;
}

// A tensor of the host, for a while on the device. A copy from memory that is not pinned may return before it is done, and our streams do
// not wait for the one that it runs on.
class NcclGroup::Staged {
 public:
  explicit Staged(Input host) : bytes_(host.size()) {
    check(cudaMemcpy(memory_.at_least(std::max<std::size_t>(1, bytes_)), host.data(), bytes_, cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
  }
  Output device() { return {memory_.at_least(std::max<std::size_t>(1, bytes_)), bytes_}; }
  void give_back(Output host) { check(cudaMemcpy(host.data(), device().data(), bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy"); }

 private:
  DeviceBuffer memory_;
  std::size_t bytes_;
};

void NcclGroup::moved(std::int64_t sent, std::int64_t received) {
  traffic_.sent += sent;
  traffic_.received += received;
}

std::vector<NcclGroup::Part> NcclGroup::parts_of(Counts counts, base::DType dtype) {
  std::vector<Part> parts;
  std::size_t first = 0;
  for (const std::int64_t count : counts) {
    parts.push_back({first, static_cast<std::size_t>(count * base::size_of(dtype))});
    first += parts.back().bytes;
  }
  return parts;
}

void NcclGroup::fold_here(const Call& call, const std::vector<const std::byte*>& in, std::byte* out, std::size_t bytes) {
  std::byte* const outs[] = {out};
  auto** pointers = reinterpret_cast<const std::byte**>(pointers_.at_least(in.size() * sizeof(std::byte*)));
  device_fold({.in = in,
               .out = outs,
               .count = static_cast<std::int64_t>(bytes) / base::size_of(call.dtype),
               .dtype = call.dtype,
               .reduction = call.reduction,
               .members = size()},
              pointers, all_.stream());
}

// As among MPI's ranks: exchange pieces, fold one's own, and hand the result round where all want the whole.
void NcclGroup::reduce_parts(const Call& call, Input in, const std::vector<Part>& parts, std::byte* own_part, std::byte* whole) {
  const auto me = static_cast<std::size_t>(rank());
  std::size_t most = 0;
  for (const Part& part : parts) most = std::max(most, part.bytes);
  const auto cut = [](const Part& part, std::size_t first) { return std::min(kPiece, part.bytes - std::min(part.bytes, first)); };
  std::byte* const landing = scratch_.at_least(parts.size() * kPiece);
  for (std::size_t first = 0; first < most; first += kPiece) {
    const std::size_t own = cut(parts[me], first);
    std::vector<const std::byte*> ins;
    check(ncclGroupStart(), "ncclGroupStart");
    for (std::size_t other = 0; other < parts.size(); ++other) {
      ins.push_back(other == me ? in.data() + parts[me].first + first : landing + other * kPiece);
      if (other == me) continue;
      const std::size_t bytes = cut(parts[other], first);
      if (bytes != 0)
        check(ncclSend(in.data() + parts[other].first + first, bytes, ncclUint8, static_cast<int>(other), all_.comm(), all_.stream()),
              "ncclSend");
      if (own != 0)
        check(ncclRecv(landing + other * kPiece, own, ncclUint8, static_cast<int>(other), all_.comm(), all_.stream()), "ncclRecv");
    }
    check(ncclGroupEnd(), "ncclGroupEnd");
    all_.settle("ncclSend");
    if (own != 0) fold_here(call, ins, own_part + first, own);
    if (whole == nullptr) continue;
    check(ncclGroupStart(), "ncclGroupStart");
    for (std::size_t other = 0; other < parts.size(); ++other) {
      const std::size_t bytes = cut(parts[other], first);
      if (other == me) continue;
      if (own != 0) check(ncclSend(own_part + first, own, ncclUint8, static_cast<int>(other), all_.comm(), all_.stream()), "ncclSend");
      if (bytes != 0)
        check(ncclRecv(whole + parts[other].first + first, bytes, ncclUint8, static_cast<int>(other), all_.comm(), all_.stream()),
              "ncclRecv");
    }
    check(ncclGroupEnd(), "ncclGroupEnd");
    all_.settle("ncclSend");
  }
}

void NcclGroup::do_all_reduce(const Call& call, Input in, Output out) {
  if (on_host(out.data())) {
    Staged from(in), to(out);
    do_all_reduce(call, from.device(), to.device());
    return to.give_back(out);
  }
  current_ = call;
  const Share share = share_of(call.count, size(), rank());
  const std::int64_t own = share.count * base::size_of(call.dtype);
  if (meeting_->canonical) {
    std::vector<std::int64_t> counts;
    for (int member = 0; member < size(); ++member) counts.push_back(share_of(call.count, size(), member).count);
    reduce_parts(call, in, parts_of(counts, call.dtype), out.data() + share.first * base::size_of(call.dtype), out.data());
  } else {
    check(ncclAllReduce(in.data(), out.data(), static_cast<std::size_t>(call.count), type_of(call.dtype), rule_of(call.reduction),
                        all_.comm(), all_.stream()),
          "ncclAllReduce");
  }
  all_.finish("all_reduce");
  moved((size() - 1) * own + call.bytes() - own, (size() - 1) * own + call.bytes() - own);
}

void NcclGroup::do_reduce_scatter(const Call& call, Input in, Output out, Counts counts) {
  if (on_host(out.data())) {
    Staged from(in), to(out);
    do_reduce_scatter(call, from.device(), to.device(), counts);
    return to.give_back(out);
  }
  current_ = call;
  const std::vector<Part> parts = parts_of(counts, call.dtype);
  if (meeting_->canonical) {
    reduce_parts(call, in, parts, out.data(), nullptr);
  } else if (even(counts)) {
    check(ncclReduceScatter(in.data(), out.data(), static_cast<std::size_t>(counts[0]), type_of(call.dtype), rule_of(call.reduction),
                            all_.comm(), all_.stream()),
          "ncclReduceScatter");
  } else {
    check(ncclGroupStart(), "ncclGroupStart");
    for (std::size_t root = 0; root < parts.size(); ++root) {
      if (counts[root] == 0) continue;
      check(ncclReduce(in.data() + parts[root].first, out.data(), static_cast<std::size_t>(counts[root]), type_of(call.dtype),
                       rule_of(call.reduction), static_cast<int>(root), all_.comm(), all_.stream()),
            "ncclReduce");
    }
    check(ncclGroupEnd(), "ncclGroupEnd");
  }
  all_.finish("reduce_scatter");
  const auto own = static_cast<std::int64_t>(out.size());
  moved(call.bytes() - own, (size() - 1) * own);
}

void NcclGroup::do_all_gather(const Call& call, Input in, Output out, Counts counts) {
  if (on_host(out.data())) {
    Staged from(in), to(out);
    do_all_gather(call, from.device(), to.device(), counts);
    return to.give_back(out);
  }
  current_ = call;
  const std::vector<Part> parts = parts_of(counts, call.dtype);
  if (even(counts)) {
    check(ncclAllGather(in.data(), out.data(), in.size(), ncclUint8, all_.comm(), all_.stream()), "ncclAllGather");
  } else {
    check(ncclGroupStart(), "ncclGroupStart");
    for (std::size_t root = 0; root < parts.size(); ++root) {
      std::byte* place = out.data() + parts[root].first;
      if (parts[root].bytes == 0) continue;
      check(ncclBroadcast(in.data(), place, parts[root].bytes, ncclUint8, static_cast<int>(root), all_.comm(), all_.stream()),
            "ncclBroadcast");
    }
    check(ncclGroupEnd(), "ncclGroupEnd");
  }
  all_.finish("all_gather");
  const auto own = static_cast<std::int64_t>(in.size());
  moved((size() - 1) * own, call.bytes() - own);
}

void NcclGroup::do_broadcast(const Call& call, Output data) {
  if (on_host(data.data())) {
    Staged staged(data);
    do_broadcast(call, staged.device());
    return staged.give_back(data);
  }
  current_ = call;
  check(ncclBroadcast(data.data(), data.data(), data.size(), ncclUint8, call.other, all_.comm(), all_.stream()), "ncclBroadcast");
  all_.finish("broadcast");
  moved(rank() == call.other ? (size() - 1) * call.bytes() : 0, rank() == call.other ? 0 : call.bytes());
}

void NcclGroup::do_reduce(const Call& call, Input in, Output out) {
  current_ = call;
  if (meeting_->canonical) {
    // The root's part is everything, the others' nothing.
    std::vector<Part> parts(static_cast<std::size_t>(size()), Part{0, 0});
    parts[static_cast<std::size_t>(call.other)] = {0, in.size()};
    reduce_parts(call, in, parts, out.data(), nullptr);
  } else {
    check(ncclReduce(in.data(), out.data(), static_cast<std::size_t>(call.count), type_of(call.dtype), rule_of(call.reduction), call.other,
                     all_.comm(), all_.stream()),
          "ncclReduce");
  }
  all_.finish("reduce");
  moved(rank() == call.other ? 0 : call.bytes(), rank() == call.other ? (size() - 1) * call.bytes() : 0);
}

void NcclGroup::do_all_to_all(const Call& call, Input in, Counts in_counts, Output out, Counts out_counts) {
  current_ = call;
  const std::vector<Part> ins = parts_of(in_counts, call.dtype);
  const std::vector<Part> outs = parts_of(out_counts, call.dtype);
  const auto me = static_cast<std::size_t>(rank());
  check(ncclGroupStart(), "ncclGroupStart");
  for (std::size_t other = 0; other < ins.size(); ++other) {
    const auto peer = static_cast<int>(other);
    if (other == me) continue;
    if (ins[other].bytes != 0)
      check(ncclSend(in.data() + ins[other].first, ins[other].bytes, ncclUint8, peer, all_.comm(), all_.stream()), "ncclSend");
    if (outs[other].bytes != 0)
      check(ncclRecv(out.data() + outs[other].first, outs[other].bytes, ncclUint8, peer, all_.comm(), all_.stream()), "ncclRecv");
  }
  check(ncclGroupEnd(), "ncclGroupEnd");
  all_.settle("all_to_all");
  check(cudaMemcpyAsync(out.data() + outs[me].first, in.data() + ins[me].first, ins[me].bytes, cudaMemcpyDeviceToDevice, all_.stream()),
        "cudaMemcpyAsync");
  all_.finish("all_to_all");
  moved(static_cast<std::int64_t>(in.size() - ins[me].bytes), static_cast<std::int64_t>(out.size() - outs[me].bytes));
}

void NcclGroup::do_barrier(const Call& call) {
  current_ = call;
  std::byte* word = word_.at_least(4);
  check(ncclAllReduce(word, word, 1, ncclInt32, ncclMax, all_.comm(), all_.stream()), "ncclAllReduce");
  all_.finish("barrier");
}

void NcclGroup::do_send(const Call& call, Input data) {
  current_ = call;
  Channel& channel = towards(call.other);
  Sent sent;
  const auto landed = [](const Sent& one) { return cudaEventQuery(one.done) == cudaSuccess; };
  if (const auto free = std::find_if(under_way_.begin(), under_way_.end(), landed); free != under_way_.end()) {
    sent = std::move(*free);
    under_way_.erase(free);
  } else {
    sent.copy = std::make_unique<DeviceBuffer>();
    check(cudaEventCreateWithFlags(&sent.done, cudaEventDisableTiming), "cudaEventCreate");
  }
  std::byte* copy = sent.copy->at_least(data.size());
  // On a stream with nothing else on it: the caller may write its data again as soon as the copy is made.
  check(cudaMemcpyAsync(copy, data.data(), data.size(), cudaMemcpyDeviceToDevice, all_.stream()), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(all_.stream()), "cudaStreamSynchronize");
  if (!data.empty()) check(ncclSend(copy, data.size(), ncclUint8, call.other, channel.comm(), channel.stream()), "ncclSend");
  channel.settle("send");
  check(cudaEventRecord(sent.done, channel.stream()), "cudaEventRecord");
  under_way_.push_back(std::move(sent));
  moved(call.bytes(), 0);
}

void NcclGroup::do_receive(const Call& call, Output data) {
  current_ = call;
  // From a lower member come messages that go up.
  Channel& channel = *channels_[call.other < rank() ? 1 : 2];
  if (!data.empty()) check(ncclRecv(data.data(), data.size(), ncclUint8, call.other, channel.comm(), channel.stream()), "ncclRecv");
  channel.finish("receive");
  moved(0, call.bytes());
}

}  // namespace plimsoll::collectives::nccl
