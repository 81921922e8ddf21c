#include "cost/operator.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "cost/matrix.h"
#include "cost/samples.h"

namespace plimsoll::cost {

namespace {

using cluster::AttentionForm;
using cluster::Device;
using cluster::DType;
using ops::Types;

// Bytes for each score where all of them go through memory, two an element, as systems with dropout in attention do: written by the
// product, read and written by the softmax, read and written with a mask of one byte by dropout, read by the product with the values.
// Backward, probabilities are read for the values' gradient; the scores' gradient is written, passes dropout and softmax (which also
// reads the probabilities), and is read for queries and for keys.
constexpr double kScoreBytesForward = 13.0;
constexpr double kScoreBytesBackward = 19.0;

// What a kernel that works tile by tile reaches of the rate of large products: softmax runs between its two, and costs the more the
// shorter the heads are; tiles on the diagonal are computed whole and a row's first and last tile are not hidden by others, which costs the
// more the shorter the sequence is. Shares as measured on an H200 with heads of 64 and sequences of 1024; how they depend on heads and
// length as such kernels' authors report it for lengths of 512 to 16,384.
constexpr double kTiledShare = 0.63;
constexpr double kTiledShareBackward = 0.53;
constexpr double kSoftmaxOfAHead = 19.0;
constexpr double kEndsOfASequence = 550.0;

// Logits of a head are written once and read by softmax and its gradient, in chunks.
constexpr double kLogitPasses = 4.0;

std::vector<Product> products_of(const ops::Op& op, Types inputs, Types outputs) {
  const auto products = ops::definition_of(op).products;
  if (products == nullptr) return {};
  const DType dtype = type_of(inputs);
  std::vector<Product> priced;
  for (const ops::Product& product : products(op, inputs, outputs))
    priced.push_back({.rows = product.rows, .columns = product.columns, .depth = product.depth, .dtype = dtype});
  return priced;
}

std::optional<ops::Scores> scores_of(const ops::Op& op, Types inputs) {
  const auto scores = ops::definition_of(op).scores;
  return scores != nullptr ? std::optional(scores(op, inputs)) : std::nullopt;
}

double memory_seconds(const Device& device, double bytes) { return bytes / (device.bandwidth * device.bandwidth_share); }

double attention_seconds(const Device& device, const ops::Scores& size, const ops::Work& work, DType dtype) {
  if (device.attention == AttentionForm::tiled) {
    const double products = static_cast<double>(size.dim) / (static_cast<double>(size.dim) + kSoftmaxOfAHead);
    const double tiles = static_cast<double>(size.length) / (static_cast<double>(size.length) + kEndsOfASequence);
    const double share = (size.gradients ? kTiledShareBackward : kTiledShare) * products * tiles;
    return std::max(size.listed * work.flops / (matrix_rate(device, dtype) * device.matrix_share * share),
                    memory_seconds(device, work.bytes));
  }
  const Product scores{.rows = size.length, .columns = size.keys, .depth = size.dim, .batch = size.comparisons(), .dtype = dtype};
  const Product values{.rows = size.length, .columns = size.dim, .depth = size.keys, .batch = size.comparisons(), .dtype = dtype};
  const double factor = size.gradients ? 2.0 : 1.0;  // two products for the gradients of each
  const double bytes = size.count() * (size.gradients ? kScoreBytesBackward : kScoreBytesForward);
  // The products run at the pace of the scores that they write or read where that is slower; the softmax between them always does.
  const double score_bytes = size.count() * static_cast<double>(base::size_of(dtype));
  const auto product = [&](const Product& each) {
    return factor * std::max(matrix_seconds(device, each), memory_seconds(device, score_bytes));
  };
  const double between = bytes - factor * 2.0 * score_bytes;
  return product(scores) + product(values) + memory_seconds(device, std::max(between, 0.0) + work.bytes);
}

double modelled_seconds(const Device& device, const ops::Op& op, Types inputs, Types outputs) {
  const ops::Work work = ops::definition_of(op).work(op, inputs, outputs);
  if (const std::optional<ops::Scores> scores = scores_of(op, inputs))
    return device.launch + attention_seconds(device, *scores, work, type_of(inputs));
  const std::vector<Product> products = products_of(op, inputs, outputs);
  if (products.empty()) return device.launch + std::max(work.flops / device.vector_rate, memory_seconds(device, work.bytes));
  double seconds = device.launch * static_cast<double>(products.size());
  for (const Product& product : products) seconds += matrix_seconds(device, product);
  double bytes = work.bytes;
  if (ops::definition_of(op).chunks_product) {
    const double logits = static_cast<double>(products[0].rows) * static_cast<double>(products[0].columns);
    return seconds + memory_seconds(device, bytes + kLogitPasses * logits * static_cast<double>(base::size_of(products[0].dtype)));
  }
  return std::max(seconds, device.launch + memory_seconds(device, bytes));
}

}  // namespace

DType type_of(Types inputs) {
  for (const base::TensorType& type : inputs) {
    if (base::is_float(type.dtype)) return type.dtype;
  }
  return DType::f32;
}

std::array<std::int64_t, 3> extents_of(const ops::Op& op, Types inputs, Types outputs) {
  if (const std::optional<ops::Scores> scores = scores_of(op, inputs))
    return {static_cast<std::int64_t>(scores->density * static_cast<double>(scores->length * scores->keys)), scores->dim,
            scores->comparisons()};
  const std::vector<Product> products = products_of(op, inputs, outputs);
  if (!products.empty()) return {products[0].rows, products[0].columns, products[0].depth};
  return {static_cast<std::int64_t>(ops::definition_of(op).work(op, inputs, outputs).bytes), 1, 1};
}

double operator_seconds(const Device& device, const ops::Op& op, Types inputs, Types outputs, std::int64_t threads) {
  if (ops::is_view(op)) return 0.0;
  if (!device.samples.empty()) {
    const SampleQuery query{
        .op = ops::name_of(op), .dtype = type_of(inputs), .threads = threads, .extents = extents_of(op, inputs, outputs)};
    if (const std::optional<double> seconds = seconds_between(device.samples, query)) return *seconds;
  }
  // A processor's rates are those of all its cores.
  const double share =
      device.cores > 0 && threads > 0 ? std::min(1.0, static_cast<double>(threads) / static_cast<double>(device.cores)) : 1.0;
  return modelled_seconds(device, op, inputs, outputs) / share;
}

double host_operator_seconds(const cluster::Cluster& cluster, const ops::Op& op, Types inputs, Types outputs, std::int64_t users,
                             std::int64_t threads) {
  if (cluster.device.cores > 0) return operator_seconds(cluster.device, op, inputs, outputs, threads);
  const double bytes = ops::definition_of(op).work(op, inputs, outputs).bytes;
  return bytes * static_cast<double>(std::max<std::int64_t>(users, 1)) / cluster.host.bandwidth;
}

double counted_flops(const ops::Op& op, Types inputs, Types outputs) {
  if (const std::optional<ops::Scores> scores = scores_of(op, inputs))
    return (scores->gradients ? 8.0 : 4.0) * scores->count() * static_cast<double>(scores->dim);
  double flops = 0.0;
  for (const Product& product : products_of(op, inputs, outputs)) flops += product.flops();
  return flops;
}

}  // namespace plimsoll::cost
