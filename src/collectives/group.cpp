#include "collectives/group.h"

#include <algorithm>
#include <exception>
#include <numeric>

#include "base/error.h"

namespace plimsoll::collectives {

namespace {

bool overlap(Input a, Input b) { return !a.empty() && !b.empty() && a.data() < b.data() + b.size() && b.data() < a.data() + a.size(); }

void check_same_or_apart(Input in, Input out) {
  PLIMSOLL_CHECK(!overlap(in, out) || in.data() == out.data(), "input and output overlap by parts of {} and {} bytes", in.size(),
                 out.size());
}

void check_reducible(base::DType dtype, Reduction reduction) {
  using base::DType;
  const bool real = dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
  const bool whole = dtype == DType::i32 || dtype == DType::i64 || dtype == DType::u8;
  PLIMSOLL_CHECK(real || (whole && reduction != Reduction::mean), "a {} of {} is not defined", name_of(reduction), base::name_of(dtype));
}

// Parts of `counts` make up `whole`, and part `rank` is `part`.
void check_parts(Counts counts, int size, int rank, std::size_t whole, std::size_t part, base::DType dtype) {
  PLIMSOLL_CHECK(counts.size() == static_cast<std::size_t>(size), "{} counts for {} members", counts.size(), size);
  PLIMSOLL_CHECK(std::all_of(counts.begin(), counts.end(), [](std::int64_t count) { return count >= 0; }), "a count is negative");
  const auto element = static_cast<std::size_t>(base::size_of(dtype));
  const auto total = static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  const auto own = static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]);
  PLIMSOLL_CHECK(total * element == whole, "counts add up to {} bytes, the tensor has {}", total * element, whole);
  PLIMSOLL_CHECK(own * element == part, "this member's count is {} bytes, its part has {}", own * element, part);
}

Input place_of(Counts counts, int rank, Input whole, base::DType dtype) {
  const auto element = static_cast<std::size_t>(base::size_of(dtype));
  const auto first = static_cast<std::size_t>(std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0}));
  return whole.subspan(first * element, static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]) * element);
}

}  // namespace

Share share_of(std::int64_t count, int members, int member) {
  const std::int64_t each = count / members;
  const std::int64_t more = count % members;
  return {each * member + std::min<std::int64_t>(member, more), each + (member < more ? 1 : 0)};
}

Group::Group(std::string name, std::vector<int> members, int rank) : name_(std::move(name)), members_(std::move(members)), rank_(rank) {
  PLIMSOLL_CHECK(rank_ >= 0 && rank_ < size(), "group '{}': member {} of {}", name_, rank_, size());
}

// A call in the log: over when it comes back, and not when it throws.
class Group::Noted {
 public:
  Noted(const Group& group, const Call& call) : log_(group.log_.get()), exceptions_(std::uncaught_exceptions()) {
    if (log_ != nullptr) number_ = log_->begin(group.name_, call);
  }
  ~Noted() {
    if (log_ != nullptr && std::uncaught_exceptions() == exceptions_) log_->end(number_);
  }
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;

 private:
  CallLog* log_;
  int exceptions_;
  std::uint64_t number_ = 0;
};

Call Group::next_call(Operation operation, base::DType dtype, std::size_t bytes) {
  const auto element = static_cast<std::size_t>(base::size_of(dtype));
  PLIMSOLL_CHECK(bytes % element == 0, "{} of {} bytes of {}", name_of(operation), bytes, base::name_of(dtype));
  return Call{.sequence = ++sequence_, .count = static_cast<std::int64_t>(bytes / element), .operation = operation, .dtype = dtype};
}

void Group::all_reduce(Input in, Output out, base::DType dtype, Reduction reduction) {
  PLIMSOLL_CHECK(in.size() == out.size(), "all_reduce from {} to {} bytes", in.size(), out.size());
  check_same_or_apart(in, out);
  check_reducible(dtype, reduction);
  Call call = next_call(Operation::all_reduce, dtype, in.size());
  call.reduction = reduction;
  const Noted noted(*this, call);
  do_all_reduce(call, in, out);
}

void Group::reduce_scatter(Input in, Output out, Counts counts, base::DType dtype, Reduction reduction) {
  check_parts(counts, size(), rank_, in.size(), out.size(), dtype);
  PLIMSOLL_CHECK(!overlap(in, out) || out.data() == place_of(counts, rank_, in, dtype).data(), "the output overlaps others' input");
  check_reducible(dtype, reduction);
  Call call = next_call(Operation::reduce_scatter, dtype, in.size());
  call.reduction = reduction;
  const Noted noted(*this, call);
  do_reduce_scatter(call, in, out, counts);
}

void Group::all_gather(Input in, Output out, Counts counts, base::DType dtype) {
  check_parts(counts, size(), rank_, out.size(), in.size(), dtype);
  PLIMSOLL_CHECK(!overlap(in, out) || in.data() == place_of(counts, rank_, out, dtype).data(), "the input overlaps others' output");
  const Call call = next_call(Operation::all_gather, dtype, out.size());
  const Noted noted(*this, call);
  do_all_gather(call, in, out, counts);
}

void Group::broadcast(Output data, base::DType dtype, int root) {
  PLIMSOLL_CHECK(root >= 0 && root < size(), "broadcast from member {} of {}", root, size());
  Call call = next_call(Operation::broadcast, dtype, data.size());
  call.other = root;
  const Noted noted(*this, call);
  do_broadcast(call, data);
}

void Group::reduce(Input in, Output out, base::DType dtype, Reduction reduction, int root) {
  PLIMSOLL_CHECK(root >= 0 && root < size(), "reduce to member {} of {}", root, size());
  PLIMSOLL_CHECK(rank_ != root || in.size() == out.size(), "reduce from {} to {} bytes", in.size(), out.size());
  check_same_or_apart(in, out);
  check_reducible(dtype, reduction);
  Call call = next_call(Operation::reduce, dtype, in.size());
  call.reduction = reduction;
  call.other = root;
  const Noted noted(*this, call);
  do_reduce(call, in, out);
}

void Group::all_to_all(Input in, Counts in_counts, Output out, Counts out_counts, base::DType dtype) {
  const auto element = static_cast<std::size_t>(base::size_of(dtype));
  const auto own = static_cast<std::size_t>(rank_);
  PLIMSOLL_CHECK(in_counts.size() == members_.size() && out_counts.size() == members_.size(), "all_to_all: one count for each member");
  check_parts(in_counts, size(), rank_, in.size(), static_cast<std::size_t>(in_counts[own]) * element, dtype);
  check_parts(out_counts, size(), rank_, out.size(), static_cast<std::size_t>(out_counts[own]) * element, dtype);
  PLIMSOLL_CHECK(!overlap(in, out), "all_to_all cannot work in place");
  // Members' totals differ by right, so they are no part of what must be equal; each pair of counts is.
  Call call = next_call(Operation::all_to_all, dtype, 0);
  const Noted noted(*this, call);
  do_all_to_all(call, in, in_counts, out, out_counts);
}

void Group::barrier() {
  const Call call = next_call(Operation::barrier, base::DType::u8, 0);
  const Noted noted(*this, call);
  do_barrier(call);
}

void Group::send(Input data, int to, int tag) {
  PLIMSOLL_CHECK(to >= 0 && to < size() && to != rank_, "send from member {} to member {} of {}", rank_, to, size());
  const Call call{.count = static_cast<std::int64_t>(data.size()), .other = to, .tag = tag, .operation = Operation::send};
  const Noted noted(*this, call);
  do_send(call, data);
}

void Group::receive(Output data, int from, int tag) {
  PLIMSOLL_CHECK(from >= 0 && from < size() && from != rank_, "receive by member {} from member {} of {}", rank_, from, size());
  const Call call{.count = static_cast<std::int64_t>(data.size()), .other = from, .tag = tag, .operation = Operation::receive};
  const Noted noted(*this, call);
  do_receive(call, data);
}

void Group::check_length(const Call& call, std::size_t found) const {
  if (found == static_cast<std::size_t>(call.bytes())) return;
  base::fail(base::ErrorKind::other, "group '{}': rank {} sent {} bytes with tag {}, rank {} expects {}", name_,
             members_[static_cast<std::size_t>(call.other)], found, call.tag, members_[static_cast<std::size_t>(rank_)], call.bytes());
}

}  // namespace plimsoll::collectives
