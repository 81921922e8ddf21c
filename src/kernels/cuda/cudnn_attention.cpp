// Attention by cuDNN's fused form, for 16-bit elements. Heads stay packed as they are: a tensor is a base address and strides. Where
// several query heads share a key (grouped queries) they lie side by side and the groups do not, so each group is one run of the same
// graph at its own addresses. Windows are the library's own; segments are a bias on scores, made before each run in the workspace
// (attention_masks.h). Dropout with our counters is left to mma_attention.cu.
//
// cuDNN is found at run time: without it, or where it does not take a shape, the plain kernel is next in the table. What it
// asks for as workspace depends on the GPU, so plans that use it are made where the GPU is.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "base/error.h"
#include "kernels/cuda/attention_masks.h"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/workspace.h"

namespace plimsoll::kernels::cuda {

namespace {

namespace fe = cudnn_frontend;
using base::DType;

enum Uid : std::int64_t { kQuery = 1, kKey, kValue, kOut, kStats, kDout, kDquery, kDkey, kDvalue, kBias };

// Larger masks are not worth their memory.
constexpr std::int64_t kMostMaskBytes = std::int64_t{4} << 30;
constexpr std::int64_t kMostHeads = 65535;  // that one launch reaches

// One run of a graph: all heads where each has its own key, else one group.
struct Problem {
  std::int64_t batch, length, dim;
  std::int64_t query_heads, kv_heads;  // of one run
  std::int64_t runs;
  std::int64_t packed_width, out_width, all_heads;
  bool causal;
  std::int64_t window;
  bool segmented;
  DType dtype;
  bool backward;
  bool deterministic;

  std::string text() const {
    return fmt::format("{} x {} x {} x {} of {} in {} runs {} {} {} {} {} {}", batch, length, query_heads, dim, packed_width, runs, causal,
                       window, segmented, base::name_of(dtype), backward, deterministic);
  }
  // Windows do not go with a bias in some of the library's versions, so they are part of it then.
  std::int64_t bias_elements() const { return segmented ? batch * length * length : 0; }
  // Before version 9.26 the library reads the backward pass's statistics right only where a run's lie together.
  bool copies_stats() const { return backward && (segmented || runs > 1); }
  bool grouped() const { return query_heads > kv_heads; }
  // Elements between heads of a tensor within a run.
  std::int64_t query_step() const { return grouped() ? dim : 3 * dim; }
  std::int64_t kv_step() const { return 3 * dim; }
  std::int64_t key_offset() const { return grouped() ? query_heads * dim : dim; }
};

Problem problem_of(const ops::KernelQuery& query, bool deterministic) {
  const ops::AttentionView view = ops::attention_of(query.op);
  const ops::Attention& op = view.attention;
  const base::TensorType& packed = query.inputs[view.packed()];
  const bool grouped = op.heads.per_group() > 1;
  return {.batch = packed.shape[0],
          .length = packed.shape[1],
          .dim = op.heads.dim,
          .query_heads = grouped ? op.heads.per_group() : op.heads.query,
          .kv_heads = grouped ? 1 : op.heads.kv,
          .runs = grouped ? op.heads.kv : 1,
          .packed_width = op.heads.packed_width(),
          .out_width = op.heads.query * op.heads.dim,
          .all_heads = op.heads.query,
          .causal = op.causal,
          .window = op.window,
          .segmented = op.segmented,
          .dtype = packed.dtype,
          .backward = view.backward,
          .deterministic = deterministic};
}

void check_fe(fe::error_t error, const Problem& problem) {
  if (error.is_good()) return;
  base::fail(base::ErrorKind::peer_lost, "cuDNN: attention of {}: {}", problem.text(), error.get_message());
}

// Handles belong to a thread and a device.
cudnnHandle_t handle() {
  thread_local std::map<int, cudnnHandle_t> handles;
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  cudnnHandle_t& made = handles[device];
  if (made == nullptr && fe::detail::create_handle(&made) != CUDNN_STATUS_SUCCESS) base::bad_input("cuDNN could not be started");
  return made;
}

struct Built {
  Problem problem;
  std::shared_ptr<fe::graph::Graph> graph;
  std::int64_t workspace = 0;
  std::string refusal;
};

class GraphBuilder {
 public:
  explicit GraphBuilder(const Problem& problem) : p_(problem), graph_(std::make_shared<fe::graph::Graph>()) {
    graph_->set_io_data_type(p_.dtype == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  std::shared_ptr<fe::graph::Graph> forward() {
    auto attributes =
        fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true).set_attn_scale(scale()).set_causal_mask(p_.causal);
    set_masks(attributes);
    auto [out, stats] = graph_->sdpa(query(kQuery), key_or_value(kKey), key_or_value(kValue), attributes);
    shape_out(out).set_output(true).set_uid(kOut);
    shape_stats(stats).set_output(true).set_uid(kStats);
    return graph_;
  }

  std::shared_ptr<fe::graph::Graph> backward() {
    auto out = graph_->tensor(shape_of_out().set_uid(kOut));
    auto dout = graph_->tensor(shape_of_out().set_uid(kDout));
    auto stats = graph_->tensor(shape_of_stats().set_uid(kStats));
    auto attributes = fe::graph::SDPA_backward_attributes()
                          .set_name("attention_grad")
                          .set_attn_scale(scale())
                          .set_causal_mask(p_.causal)
                          .set_deterministic_algorithm(p_.deterministic);
    set_masks(attributes);
    auto [dquery, dkey, dvalue] =
        graph_->sdpa_backward(query(kQuery), key_or_value(kKey), key_or_value(kValue), out, dout, stats, attributes);
    dquery->set_output(true).set_uid(kDquery).set_dim(query_dims()).set_stride(query_strides());
    dkey->set_output(true).set_uid(kDkey).set_dim(kv_dims()).set_stride(kv_strides());
    dvalue->set_output(true).set_uid(kDvalue).set_dim(kv_dims()).set_stride(kv_strides());
    return graph_;
  }

 private:
  using Dims = std::vector<std::int64_t>;
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(p_.dim)); }
  Dims query_dims() const { return {p_.batch, p_.query_heads, p_.length, p_.dim}; }
  Dims query_strides() const { return {p_.length * p_.packed_width, p_.query_step(), p_.packed_width, 1}; }
  Dims kv_dims() const { return {p_.batch, p_.kv_heads, p_.length, p_.dim}; }
  Dims kv_strides() const { return {p_.length * p_.packed_width, p_.kv_step(), p_.packed_width, 1}; }
  Dims out_strides() const { return {p_.length * p_.out_width, p_.dim, p_.out_width, 1}; }
  Dims stats_dims() const { return {p_.batch, p_.query_heads, p_.length, 1}; }
  Dims stats_strides() const { return {(p_.backward ? p_.query_heads : p_.all_heads) * p_.length, p_.length, 1, 1}; }

  template <typename Attributes>
  void set_masks(Attributes& attributes) {
    if (p_.window > 0 && !p_.segmented)
      attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_left_bound(static_cast<int>(p_.window));
    if (!p_.segmented) return;
    const std::int64_t square = p_.length * p_.length;
    attributes.set_bias(graph_->tensor(fe::graph::Tensor_attributes()
                                           .set_uid(kBias)
                                           .set_dim({p_.batch, 1, p_.length, p_.length})
                                           .set_stride({square, square, p_.length, 1})));
  }

  std::shared_ptr<fe::graph::Tensor_attributes> query(Uid uid) {
    return graph_->tensor(fe::graph::Tensor_attributes().set_uid(uid).set_dim(query_dims()).set_stride(query_strides()));
  }
  std::shared_ptr<fe::graph::Tensor_attributes> key_or_value(Uid uid) {
    return graph_->tensor(fe::graph::Tensor_attributes().set_uid(uid).set_dim(kv_dims()).set_stride(kv_strides()));
  }
  fe::graph::Tensor_attributes shape_of_out() const {
    return fe::graph::Tensor_attributes().set_dim(query_dims()).set_stride(out_strides());
  }
  fe::graph::Tensor_attributes shape_of_stats() const {
    return fe::graph::Tensor_attributes().set_dim(stats_dims()).set_stride(stats_strides()).set_data_type(fe::DataType_t::FLOAT);
  }
  fe::graph::Tensor_attributes& shape_out(const std::shared_ptr<fe::graph::Tensor_attributes>& out) const {
    return out->set_dim(query_dims()).set_stride(out_strides());
  }
  fe::graph::Tensor_attributes& shape_stats(const std::shared_ptr<fe::graph::Tensor_attributes>& stats) const {
    return stats->set_dim(stats_dims()).set_stride(stats_strides()).set_data_type(fe::DataType_t::FLOAT);
  }

  const Problem& p_;
  std::shared_ptr<fe::graph::Graph> graph_;
};

std::string why_not_here() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    cudaGetLastError();
    return "cuDNN plans for the GPU that is there, and there is none";
  }
  try {
    fe::detail::get_backend_version();
  } catch (const std::exception& error) {
    return fmt::format("cuDNN was not found: {}", error.what());
  }
  return "";
}

std::shared_ptr<const Built> build(const Problem& problem) {
  auto built = std::make_shared<Built>(Built{problem, nullptr, 0, ""});
  static const std::string missing = why_not_here();
  built->refusal = missing;
  if (!missing.empty()) return built;
  try {
    GraphBuilder builder(built->problem);
    built->graph = problem.backward ? builder.backward() : builder.forward();
    fe::error_t error = built->graph->build(handle(), {fe::HeurMode_t::A});
    if (error.is_bad()) {
      built->refusal = fmt::format("cuDNN does not take it: {}", error.get_message());
    } else {
      check_fe(built->graph->get_workspace_size(built->workspace), problem);
    }
  } catch (const std::exception& error) {
    built->refusal = fmt::format("cuDNN does not take it: {}", error.what());
  }
  return built;
}

// Building takes a moment, and blocks are alike.
std::shared_ptr<const Built> built_for(const Problem& problem) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Built>> all;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const Built>& found = all[problem.text()];
  if (found == nullptr) found = build(problem);
  return found;
}

std::optional<std::string> refuse(const ops::KernelQuery& query, bool deterministic) {
  const ops::AttentionView view = ops::attention_of(query.op);
  const ops::Attention& op = view.attention;
  if (op.separate) return "queries, keys and values are operands of their own";
  if (op.pattern.rule != nullptr) return fmt::format("it has no form for the mask {}", op.pattern.rule->name);
  const DType dtype = query.inputs[view.packed()].dtype;
  if (dtype != DType::bf16 && dtype != DType::f16) return "operands are not 16-bit floats";
  if (op.heads.dim % 8 != 0) return "heads are not a multiple of 16 bytes";
  const Problem problem = problem_of(query, deterministic);
  if (op.rate > 0.0) return "dropout has counters of our own";
  if (problem.segmented && problem.length % 8 != 0) return "8 does not divide the length, and segments are a tensor";
  if (problem.batch * problem.all_heads > kMostHeads) return fmt::format("the samples have more than {} heads together", kMostHeads);
  if (2 * problem.bias_elements() > kMostMaskBytes) return fmt::format("a mask would have more than {} bytes", kMostMaskBytes);
  const std::shared_ptr<const Built> built = built_for(problem);
  if (!built->refusal.empty()) return built->refusal;
  return std::nullopt;
}

template <bool kDeterministic>
std::optional<std::string> refusal(const ops::KernelQuery& query) {
  if (!kDeterministic && query.deterministic) return "it adds in an order that differs from run to run";
  return refuse(query, kDeterministic);
}

struct Scratch {
  std::byte* library;
  std::byte* bias;
  float* stats;

  Scratch(const Built& built, Workspace& pieces)
      : library(pieces.take<std::byte>(built.workspace)),
        bias(pieces.take<std::byte>(2 * built.problem.bias_elements())),
        stats(pieces.take<float>(built.problem.copies_stats() ? built.problem.batch * built.problem.all_heads * built.problem.length : 0)) {
  }
};

template <bool kDeterministic>
std::int64_t workspace(const ops::KernelQuery& query) {
  Workspace pieces;
  Scratch(*built_for(problem_of(query, kDeterministic)), pieces);
  return pieces.bytes();
}

template <bool kDeterministic>
Prepared prepare(const ops::KernelQuery& query) {
  return built_for(problem_of(query, kDeterministic));
}

// What the graphs read beside the operands of the call; gives the rows.
MaskedRows fill_masks(const Call& call, const Problem& p, const Scratch& scratch, cudaStream_t stream) {
  const MaskedRows rows{.batch = p.batch,
                        .length = p.length,
                        .window = p.window,
                        .segments = p.segmented ? call.inputs[p.backward ? 4 : 1].as<const std::int32_t>() : nullptr};
  if (p.segmented) launch_score_bias(rows, p.dtype, scratch.bias, stream);
  if (p.copies_stats()) launch_stats_of_runs(rows, p.all_heads, p.runs, call.inputs[3].as<const float>(), scratch.stats, stream);
  return rows;
}

void launch(const Call& call, cudaStream_t stream) {
  const auto& built = *static_cast<const Built*>(call.prepared);
  const Problem& p = built.problem;
  Workspace pieces(call.workspace);
  const Scratch scratch(built, pieces);
  const MaskedRows rows = fill_masks(call, p, scratch, stream);
  PLIMSOLL_CHECK(fe::detail::set_stream(handle(), stream) == CUDNN_STATUS_SUCCESS, "cuDNN does not take a stream");
  const std::int64_t size = base::size_of(p.dtype);
  for (std::int64_t run = 0; run < p.runs; ++run) {
    const std::int64_t packed_at = run * (p.query_heads + 2) * p.dim * size;
    const std::int64_t key_at = packed_at + p.key_offset() * size;
    const std::int64_t out_at = run * p.query_heads * p.dim * size;
    const std::int64_t stats_at = run * p.query_heads * p.length * 4;
    const auto at = [](const Tensor& tensor, std::int64_t offset) -> void* { return tensor.as<std::byte>() + offset; };
    std::unordered_map<std::int64_t, void*> addresses;
    const Tensor& packed = call.inputs[p.backward ? 1 : 0];
    addresses[kQuery] = at(packed, packed_at);
    addresses[kKey] = at(packed, key_at);
    addresses[kValue] = at(packed, key_at + p.dim * size);
    if (p.backward) {
      addresses[kDout] = at(call.inputs[0], out_at);
      addresses[kOut] = at(call.inputs[2], out_at);
      addresses[kStats] = p.copies_stats() ? scratch.stats + run * p.batch * p.query_heads * p.length : at(call.inputs[3], 0);
      addresses[kDquery] = at(call.outputs[0], packed_at);
      addresses[kDkey] = at(call.outputs[0], key_at);
      addresses[kDvalue] = at(call.outputs[0], key_at + p.dim * size);
    } else {
      addresses[kOut] = at(call.outputs[0], out_at);
      addresses[kStats] = at(call.outputs[1], stats_at);
    }
    if (p.segmented) addresses[kBias] = scratch.bias;
    check_fe(built.graph->execute(handle(), addresses, scratch.library), p);
  }
  if (p.segmented && !p.backward) launch_blank_rows(rows, p.all_heads, call.outputs[0], call.outputs[1].as<float>(), stream);
}

constexpr Kernel kKernels[] = {
    {.op = "attention",
     .name = "attention.cudnn",
     .refusal = refusal<true>,
     .workspace = workspace<true>,
     .prepare = prepare<true>,
     .launch = launch},
    {.op = "attention_grad",
     .name = "attention_grad.cudnn-any-order",
     .refusal = refusal<false>,
     .workspace = workspace<false>,
     .prepare = prepare<false>,
     .launch = launch},
    {.op = "attention_grad",
     .name = "attention_grad.cudnn",
     .refusal = refusal<true>,
     .workspace = workspace<true>,
     .prepare = prepare<true>,
     .launch = launch},
};

}  // namespace

std::span<const Kernel> cudnn_attention_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda
