#include "kernels/cpu/onednn_gemm.h"

#include <omp.h>

#include <string_view>
#include <unordered_map>

#include <dnnl.hpp>

#include "base/error.h"
#include "base/processor.h"
#include "kernels/cpu/isa.h"

namespace plimsoll::kernels::cpu {

namespace {

using base::DType;

// oneDNN takes as many threads as OpenMP would, when a primitive is made and when it runs; the two must agree. The
// setting is the calling thread's own, so ranks that are threads do not disturb each other.
class ThreadCount {
 public:
  explicit ThreadCount(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;
  ~ThreadCount() { omp_set_num_threads(before_); }

 private:
  int before_;
};

dnnl::memory::data_type onednn_type(DType dtype) {
  return dtype == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, DType dtype, bool transposed) {
  const dnnl::memory::dims strides = transposed ? dnnl::memory::dims{1, rows} : dnnl::memory::dims{columns, 1};
  return {{rows, columns}, onednn_type(dtype), strides};
}

bool multiplies_bf16() { return base::processor().isa >= base::Isa::avx512_bf16; }

dnnl::cpu_isa onednn_isa(base::Isa isa) {
  switch (isa) {
    case base::Isa::other: return dnnl::cpu_isa::all;
    case base::Isa::sse: return dnnl::cpu_isa::sse41;
    case base::Isa::avx2: return dnnl::cpu_isa::avx2;
    case base::Isa::avx512: return dnnl::cpu_isa::avx512_core;
    case base::Isa::avx512_bf16: return dnnl::cpu_isa::avx512_core_bf16;
    case base::Isa::amx: return dnnl::cpu_isa::avx512_core_amx;
  }
  return dnnl::cpu_isa::avx2;
}

}  // namespace

// oneDNN looks at flags alone, and takes no other limit once a primitive exists.
void settle_onednn_isa() {
  const auto wanted = onednn_isa(base::processor().isa);
  const dnnl::status status = dnnl::set_max_cpu_isa(wanted);
  PLIMSOLL_CHECK(status == dnnl::status::success, "oneDNN was in use before its instruction set was settled");
}

struct OnednnMatmul::State {
  OnednnGemm gemm;
  int threads = 1;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::memory::desc a, b, c, bias;
  std::optional<dnnl::matmul::primitive_desc> description;  // none where oneDNN has no way at all
  std::optional<dnnl::matmul> matmul;
};

OnednnMatmul::OnednnMatmul(const OnednnGemm& gemm, int threads) : state_(std::make_shared<State>()) {
  state_->gemm = gemm;
  state_->threads = threads;
  if (!multiplies_bf16()) return;
  const ThreadCount scope(threads);
  state_->a = matrix(gemm.m, gemm.k, DType::bf16, gemm.a_transposed);
  state_->b = matrix(gemm.k, gemm.n, DType::bf16, gemm.b_transposed);
  state_->c = matrix(gemm.m, gemm.n, gemm.c_dtype, false);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (gemm.accumulate) {
    dnnl::post_ops after;
    after.append_sum(1.0f);
    attributes.set_post_ops(after);
  }
  try {
    if (gemm.bias) {
      state_->bias = matrix(1, gemm.n, *gemm.bias, false);
      state_->description.emplace(dnnl::matmul::desc(state_->a, state_->b, state_->bias, state_->c), attributes, state_->engine);
    } else {
      state_->description.emplace(dnnl::matmul::desc(state_->a, state_->b, state_->c), attributes, state_->engine);
    }
  } catch (const dnnl::error&) {
    state_->description.reset();
  }
}

std::int64_t OnednnMatmul::workspace() const { return static_cast<std::int64_t>(state_->description->scratchpad_desc().get_size()); }

std::optional<std::string> OnednnMatmul::refusal() const {
  if (!multiplies_bf16()) return "this CPU has no bf16 arithmetic";
  if (!state_->description) return "oneDNN does not take these operands";
  const std::string_view name = state_->description->impl_info_str();
  if (!name.starts_with("brg")) return fmt::format("oneDNN has only its slow form ({}) for these sizes", name);
  return std::nullopt;
}

void OnednnMatmul::prepare() {
  const ThreadCount scope(state_->threads);
  try {
    state_->matmul.emplace(*state_->description);
  } catch (const dnnl::error& error) {
    base::fail(base::ErrorKind::other, "oneDNN could not compile a matrix multiplication: {}; use precision f32 on this machine",
               error.what());
  }
}

void OnednnMatmul::run(const void* a, const void* b, const void* bias, void* c, std::byte* workspace) const {
  State& state = *state_;
  const ThreadCount scope(state.threads);
  const auto memory = [&](const dnnl::memory::desc& type, const void* data) {
    return dnnl::memory(type, state.engine, const_cast<void*>(data));
  };
  std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC, memory(state.a, a)},
                                                  {DNNL_ARG_WEIGHTS, memory(state.b, b)},
                                                  {DNNL_ARG_DST, memory(state.c, c)},
                                                  {DNNL_ARG_SCRATCHPAD, memory(state.description->scratchpad_desc(), workspace)}};
  if (state.gemm.bias) arguments.emplace(DNNL_ARG_BIAS, memory(state.bias, bias));
  try {
    state.matmul->execute(state.stream, arguments);
  } catch (const dnnl::error& error) {
    base::fail(base::ErrorKind::other, "oneDNN failed in a matrix multiplication: {}", error.what());
  }
}

}  // namespace plimsoll::kernels::cpu
