#include "collectives/cases.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include "base/random.h"

namespace plimsoll::collectives::tests {

namespace {

using base::DType;
using Bytes = std::vector<std::byte>;

constexpr DType kReducible[] = {DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8};

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9E3779B97F4A7C15u + b + 0x7F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

template <typename T>
T read(const Bytes& bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

template <typename T>
void write(Bytes& bytes, std::size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof value, &value, sizeof value);
}

float real(const Bytes& bytes, std::size_t index, DType dtype) {
  if (dtype == DType::f32) return read<float>(bytes, index);
  const auto bits = read<std::uint16_t>(bytes, index);
  return dtype == DType::bf16 ? base::f32_from_bf16(bits) : base::f32_from_f16(bits);
}

void write_real(Bytes& bytes, std::size_t index, DType dtype, float value) {
  if (dtype == DType::f32) return write(bytes, index, value);
  write(bytes, index, dtype == DType::bf16 ? base::bf16_from_f32(value) : base::f16_from_f32(value));
}

float fold_real(const std::vector<Bytes>& inputs, std::size_t index, DType dtype, Reduction reduction) {
  float sum = real(inputs[0], index, dtype);
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    const float next = real(inputs[i], index, dtype);
    sum = reduction == Reduction::max ? (next > sum ? next : sum) : sum + next;
  }
  return reduction == Reduction::mean ? sum * (1.0f / static_cast<float>(inputs.size())) : sum;
}

template <typename T>
T fold_whole(const std::vector<Bytes>& inputs, std::size_t index, Reduction reduction) {
  using Unsigned = std::make_unsigned_t<T>;
  T sum = read<T>(inputs[0], index);
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    const T next = read<T>(inputs[i], index);
    sum = reduction == Reduction::max ? std::max(sum, next) : static_cast<T>(static_cast<Unsigned>(sum) + static_cast<Unsigned>(next));
  }
  return sum;
}

// One rank's run of cases on one group.
class Runner {
 public:
  Runner(Group& group, std::uint64_t seed) : group_(group), seed_(seed) {}

  void all_reduce(std::int64_t count, DType dtype, Reduction reduction, bool in_place) {
    const std::vector<Bytes> inputs = all_inputs(count, dtype);
    const Bytes expected = plain_fold(inputs, dtype, reduction);
    Bytes in = inputs[own()];
    Bytes out = in_place ? Bytes{} : Bytes(in.size());
    group_.all_reduce(in, in_place ? in : out, dtype, reduction);
    check(in_place ? in : out, expected, "all_reduce");
    if (!in_place) check(in, inputs[own()], "the input of all_reduce");
  }

  void reduce_scatter(const std::vector<std::int64_t>& counts, DType dtype, Reduction reduction, bool in_place) {
    const std::vector<Bytes> inputs = all_inputs(sum_of(counts), dtype);
    const Bytes expected = part(plain_fold(inputs, dtype, reduction), counts, group_.rank(), dtype);
    Bytes in = inputs[own()];
    Bytes out(expected.size());
    const std::size_t first = first_of(counts, group_.rank(), dtype);
    const Output place = in_place ? Output(in).subspan(first, expected.size()) : Output(out);
    group_.reduce_scatter(in, place, counts, dtype, reduction);
    check(Bytes(place.begin(), place.end()), expected, "reduce_scatter");
  }

  void all_gather(const std::vector<std::int64_t>& counts, DType dtype, bool in_place) {
    Bytes expected;
    Bytes mine;
    for (int member = 0; member < group_.size(); ++member) {
      const Bytes one = input_of(member, counts[static_cast<std::size_t>(member)], dtype, seed_);
      expected.insert(expected.end(), one.begin(), one.end());
      if (member == group_.rank()) mine = one;
    }
    Bytes out(expected.size());
    Input in = mine;
    if (in_place) {
      const auto place = Output(out).subspan(first_of(counts, group_.rank(), dtype), mine.size());
      std::copy(mine.begin(), mine.end(), place.begin());
      in = place;
    }
    group_.all_gather(in, out, counts, dtype);
    check(out, expected, "all_gather");
  }

  void broadcast(std::int64_t count, DType dtype, int root) {
    Bytes data = input_of(group_.rank(), count, dtype, seed_);
    group_.broadcast(data, dtype, root);
    check(data, input_of(root, count, dtype, seed_), "broadcast");
  }

  void reduce(std::int64_t count, DType dtype, Reduction reduction, int root) {
    const std::vector<Bytes> inputs = all_inputs(count, dtype);
    const bool is_root = group_.rank() == root;
    Bytes out(is_root ? inputs[own()].size() : 0);
    group_.reduce(inputs[own()], out, dtype, reduction, root);
    if (is_root) check(out, plain_fold(inputs, dtype, reduction), "reduce");
  }

  // Member i sends (base + 3 i + 5 j) % 11 elements to member j.
  void all_to_all(std::int64_t base_count, DType dtype) {
    const auto between = [&](int from, int to) { return (base_count + 3 * from + 5 * to) % 11; };
    std::vector<std::int64_t> in_counts, out_counts;
    Bytes in, expected;
    for (int member = 0; member < group_.size(); ++member) {
      in_counts.push_back(between(group_.rank(), member));
      out_counts.push_back(between(member, group_.rank()));
      const Bytes there = input_of(group_.rank() * 100 + member, in_counts.back(), dtype, seed_);
      const Bytes here = input_of(member * 100 + group_.rank(), out_counts.back(), dtype, seed_);
      in.insert(in.end(), there.begin(), there.end());
      expected.insert(expected.end(), here.begin(), here.end());
    }
    Bytes out(expected.size());
    group_.all_to_all(in, in_counts, out, out_counts, dtype);
    check(out, expected, "all_to_all");
  }

  std::uint64_t digest() const { return digest_; }
  void reseed(std::uint64_t seed) { seed_ = seed; }

 private:
  std::size_t own() const { return static_cast<std::size_t>(group_.rank()); }

  std::vector<Bytes> all_inputs(std::int64_t count, DType dtype) const {
    std::vector<Bytes> inputs;
    for (int member = 0; member < group_.size(); ++member) inputs.push_back(input_of(member, count, dtype, seed_));
    return inputs;
  }

  static std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  }

  static std::size_t first_of(const std::vector<std::int64_t>& counts, int member, DType dtype) {
    return static_cast<std::size_t>(std::accumulate(counts.begin(), counts.begin() + member, std::int64_t{0}) * base::size_of(dtype));
  }

  static Bytes part(const Bytes& whole, const std::vector<std::int64_t>& counts, int member, DType dtype) {
    const auto first = whole.begin() + static_cast<std::ptrdiff_t>(first_of(counts, member, dtype));
    return Bytes(first, first + counts[static_cast<std::size_t>(member)] * base::size_of(dtype));
  }

  void check(const Bytes& found, const Bytes& expected, const char* what) {
    if (found != expected) {
      const auto [a, b] = std::mismatch(found.begin(), found.end(), expected.begin(), expected.end());
      throw Mistake(fmt::format("{} of {} bytes, member {} of {} (group {}): byte {} differs", what, expected.size(), group_.rank(),
                                group_.size(), group_.name(), a - found.begin()));
    }
    for (const std::byte byte : found) digest_ = (digest_ ^ static_cast<std::uint64_t>(byte)) * 0x100000001B3u;
  }

  Group& group_;
  std::uint64_t seed_;
  std::uint64_t digest_ = 0xCBF29CE484222325u;
};

// Ways of sharing `count` elements: even, all to one, random with zeros.
std::vector<std::vector<std::int64_t>> sharings(std::int64_t count, int members, std::uint64_t seed) {
  const auto size = static_cast<std::size_t>(members);
  std::vector<std::int64_t> even(size), one(size), random(size);
  for (int member = 0; member < members; ++member) even[static_cast<std::size_t>(member)] = share_of(count, members, member).count;
  one[seed % size] = count;
  for (std::size_t i = 0; i < size; ++i) {
    random[i] = mixed(seed, i) % 3 == 0 ? 0 : static_cast<std::int64_t>(mixed(seed, i + 100) % static_cast<std::uint64_t>(count + 1));
  }
  return {even, one, random};
}

void run_lengths(Runner& runner, std::int64_t length, int members, std::uint64_t seed) {
  for (const DType dtype : kReducible) {
    for (const Reduction reduction : {Reduction::sum, Reduction::mean, Reduction::max}) {
      if (reduction == Reduction::mean && !base::is_float(dtype)) continue;
      for (const bool in_place : {false, true}) runner.all_reduce(length, dtype, reduction, in_place);
      runner.reduce(length, dtype, reduction, static_cast<int>(seed % static_cast<std::uint64_t>(members)));
      for (const auto& counts : sharings(length, members, seed)) {
        for (const bool in_place : {false, true}) runner.reduce_scatter(counts, dtype, reduction, in_place);
      }
    }
    for (const auto& counts : sharings(length, members, seed)) {
      for (const bool in_place : {false, true}) runner.all_gather(counts, dtype, in_place);
    }
    for (int root = 0; root < members; ++root) runner.broadcast(length, dtype, root);
    runner.all_to_all(length, dtype);
  }
}

}  // namespace

Bytes input_of(int rank, std::int64_t count, DType dtype, std::uint64_t seed) {
  Bytes bytes(static_cast<std::size_t>(count * base::size_of(dtype)));
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const std::uint64_t bits = mixed(mixed(seed, static_cast<std::uint64_t>(rank)), i);
    if (base::is_float(dtype)) {
      // Magnitudes apart, so that another order of adding gives other bits.
      const float scale = static_cast<float>(1 << (bits % 12)) / 64.0f;
      write_real(bytes, i, dtype, (static_cast<float>(bits >> 40) / static_cast<float>(1 << 23) - 1.0f) * scale);
    } else if (base::size_of(dtype) == 4) {
      write(bytes, i, static_cast<std::uint32_t>(bits));
    } else if (base::size_of(dtype) == 8) {
      write(bytes, i, bits);
    } else {
      write(bytes, i, static_cast<std::uint8_t>(bits));
    }
  }
  return bytes;
}

Bytes plain_fold(const std::vector<Bytes>& inputs, DType dtype, Reduction reduction) {
  Bytes result(inputs[0].size());
  for (std::size_t i = 0; i < result.size() / static_cast<std::size_t>(base::size_of(dtype)); ++i) {
    if (base::is_float(dtype)) write_real(result, i, dtype, fold_real(inputs, i, dtype, reduction));
    if (dtype == DType::i32) write(result, i, fold_whole<std::int32_t>(inputs, i, reduction));
    if (dtype == DType::i64) write(result, i, fold_whole<std::int64_t>(inputs, i, reduction));
    if (dtype == DType::u8) write(result, i, fold_whole<std::uint8_t>(inputs, i, reduction));
  }
  return result;
}

std::uint64_t run_cases(Transport& transport, const CaseOptions& options) {
  const std::unique_ptr<Group> world = transport.make_world("cases");
  Runner runner(*world, options.seed);
  for (const std::int64_t length : options.lengths) {
    runner.reseed(mixed(options.seed, static_cast<std::uint64_t>(length)));
    run_lengths(runner, length, world->size(), options.seed + static_cast<std::uint64_t>(length));
    world->barrier();
  }
  return runner.digest();
}

std::uint64_t run_random(Transport& transport, int calls, std::uint64_t seed, std::uint64_t below) {
  // All ranks draw the same numbers. Even and odd ranks form groups of their own, in reversed order.
  std::vector<int> mine;
  for (int rank = transport.size() - 1; rank >= 0; --rank) {
    if (rank % 2 == transport.rank() % 2) mine.push_back(rank);
  }
  const std::unique_ptr<Group> world = transport.make_world("random");
  const std::unique_ptr<Group> half = transport.make_group(mine, "random");
  Runner runners[] = {Runner(*world, seed), Runner(*half, seed)};
  std::mt19937_64 random(seed);
  for (int call = 0; call < calls; ++call) {
    const std::uint64_t pick = random();
    const auto length = static_cast<std::int64_t>(random() % below);
    Runner& runner = runners[pick % 2];
    const int members = pick % 2 == 0 ? world->size() : half->size();
    const DType dtype = kReducible[(pick >> 8) % 3];
    const auto reduction = static_cast<Reduction>((pick >> 16) % 3);
    const bool in_place = (pick >> 24) % 2 == 0;
    const int root = static_cast<int>((pick >> 32) % static_cast<std::uint64_t>(members));
    const auto counts = sharings(length, members, pick)[(pick >> 40) % 3];
    runner.reseed(pick);
    switch ((pick >> 48) % 6) {
      case 0: runner.all_reduce(length, dtype, reduction, in_place); break;
      case 1: runner.reduce_scatter(counts, dtype, reduction, in_place); break;
      case 2: runner.all_gather(counts, dtype, in_place); break;
      case 3: runner.broadcast(length, dtype, root); break;
      case 4: runner.reduce(length, dtype, reduction, root); break;
      default: runner.all_to_all(length, dtype); break;
    }
  }
  return runners[0].digest() ^ runners[1].digest() * 31;
}

void run_messages(Transport& transport) {
  const std::unique_ptr<Group> group = transport.make_world("messages");
  const int members = group->size();
  if (members == 1) return;
  const int next = (group->rank() + 1) % members;
  const int previous = (group->rank() + members - 1) % members;
  const auto text = [](int from, int tag, int number) {
    return input_of(from, 100 + 3000 * number, DType::u8, static_cast<std::uint64_t>(tag));
  };
  // Everybody sends first: only a send that does not wait can survive a ring of these. Tags are then taken in another order.
  for (int number = 0; number < 5; ++number) {
    for (const int tag : {1, 2, 3}) group->send(text(group->rank(), tag, number), next, tag);
  }
  for (const int tag : {3, 1, 2}) {
    for (int number = 0; number < 5; ++number) {
      const Bytes expected = text(previous, tag, number);
      Bytes found(expected.size());
      group->receive(found, previous, tag);
      if (found != expected) throw Mistake(fmt::format("message {} with tag {} from member {} differs", number, tag, previous));
    }
  }
  group->send({}, next, 9);
  group->receive({}, previous, 9);
  // A pipeline whose first stage runs far ahead of the last.
  constexpr int kMicroBatches = 40;
  Bytes data(10000);
  for (int k = 0; k < kMicroBatches; ++k) {
    if (group->rank() == 0) data = input_of(k, 10000, DType::u8, 5);
    if (group->rank() > 0) group->receive(data, previous, 0);
    if (group->rank() + 1 < members) group->send(data, next, 0);
    if (data != input_of(k, 10000, DType::u8, 5)) throw Mistake(fmt::format("micro-batch {} differs on member {}", k, group->rank()));
  }
  group->barrier();
}

}  // namespace plimsoll::collectives::tests
