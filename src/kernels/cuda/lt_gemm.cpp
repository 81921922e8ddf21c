#include "kernels/cuda/lt_gemm.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "kernels/cuda/checks.h"

namespace plimsoll::kernels::cuda {

namespace {

using base::DType;
using Epilogue = LtProblem::Epilogue;

constexpr int kCandidates = 32;
constexpr int kTimings = 4;
constexpr float kHopeless = 1.1f;  // times the best: not worth more than one timing

void check_lt(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  base::fail(base::ErrorKind::peer_lost, "cuBLASLt: {}: {} ({})", what, cublasLtGetStatusString(status), cublasLtGetStatusName(status));
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    case DType::f8e4m3: return CUDA_R_8F_E4M3;
    case DType::f8e5m2: return CUDA_R_8F_E5M2;
    default: PLIMSOLL_CHECK(false, "a matrix product in {}", base::name_of(dtype));
  }
}

cublasLtEpilogue_t epilogue_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::none: return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::bias: return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::gelu: return CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::gelu_bias: return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::dgelu: return CUBLASLT_EPILOGUE_DGELU;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

// One handle for each device; cuBLASLt's are safe to share between threads.
cublasLtHandle_t handle() {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& made = handles[device];
  if (made == nullptr) check_lt(cublasLtCreate(&made), "cublasLtCreate");
  return made;
}

// The fastest algorithms by GPU, version and product. Ranks that are threads measure one after the other.
struct Measured {
  std::mutex mutex;
  std::map<std::string, cublasLtMatmulAlgo_t> algorithms;
  std::map<DType, std::vector<std::byte>> patterns;  // random numbers of the types that were measured
};

Measured& measured() {
  static Measured once;
  return once;
}

// Device memory while algorithms are measured; without it the first candidate is taken. It holds random numbers: on zeros and
// constants a GPU draws less power, and what is fastest there is not what is fastest in training.
class Scratch {
 public:
  void* take(std::int64_t bytes, DType dtype) {
    void* memory = nullptr;
    if (cudaMalloc(&memory, static_cast<std::size_t>(bytes)) != cudaSuccess) {
      cudaGetLastError();
      return nullptr;
    }
    taken_.push_back(memory);
    fill(static_cast<std::byte*>(memory), bytes, dtype);
    return memory;
  }
  Scratch() = default;
  ~Scratch() {
    for (void* memory : taken_) cudaFree(memory);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

 private:
  // Drawn once for each type: that takes longer than to measure a product.
  static const std::vector<std::byte>& pattern_of(DType dtype) {
    std::vector<std::byte>& pattern = measured().patterns[dtype];
    if (!pattern.empty()) return pattern;
    pattern.resize(1 << 20);
    const base::RandomKey key = base::random_key(1, base::hash_name("measuring products"));
    const auto size = static_cast<std::size_t>(base::size_of(dtype));
    for (std::size_t index = 0; index < pattern.size() / size; ++index) {
      const std::uint32_t bits = base::philox({static_cast<std::uint32_t>(index), 0, 0, 0}, key)[0];
      if (size == 1) {
        pattern[index] = static_cast<std::byte>((bits & 0x80u) | (bits >> 8) % 0x60u);  // neither NaN nor infinite
        continue;
      }
      const float value = base::uniform_from_bits(bits) - 0.5f;
      const std::uint16_t word = dtype == DType::f16 ? base::f16_from_f32(value) : base::bf16_from_f32(value);
      std::memcpy(pattern.data() + index * size, dtype == DType::f32 ? static_cast<const void*>(&value) : &word, size);
    }
    return pattern;
  }

  // The pattern from the host, then copies of what is there.
  static void fill(std::byte* memory, std::int64_t bytes, DType dtype) {
    const std::vector<std::byte>& pattern = pattern_of(dtype);
    std::int64_t done = std::min(bytes, std::ssize(pattern));
    check(cudaMemcpy(memory, pattern.data(), static_cast<std::size_t>(done), cudaMemcpyHostToDevice), "cudaMemcpy");
    for (; done < bytes; done *= 2) {
      const auto more = static_cast<std::size_t>(std::min(done, bytes - done));
      check(cudaMemcpy(memory + done, memory, more, cudaMemcpyDeviceToDevice), "cudaMemcpy");
    }
  }

  std::vector<void*> taken_;
};

// The library wants its workspace at such a boundary; the plan's are at 64 bytes.
constexpr std::int64_t kWorkspaceAlignment = 256;

// 32 MiB is what the library asks for on this generation; small products have no use for it.
std::int64_t library_workspace(const LtProblem& problem) {
  const bool small = static_cast<double>(problem.m) * static_cast<double>(problem.n) * static_cast<double>(problem.k) < 0x1p26;
  return small ? std::int64_t{1} << 20 : std::int64_t{32} << 20;
}

std::string key_of(const LtProblem& problem) {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return fmt::format("{}\t{}\t{}", properties.name, cublasLtGetVersion(), problem.text());
}

// An algorithm is so many words, which the library's documentation allows to be stored.
constexpr std::size_t kAlgorithmWords = sizeof(cublasLtMatmulAlgo_t) / sizeof(std::uint64_t);
constexpr std::size_t kWordDigits = 16;

void* aligned(std::byte* workspace) {
  const auto address = reinterpret_cast<std::uintptr_t>(workspace);
  return reinterpret_cast<void*>((address + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment);
}

}  // namespace

std::string LtProblem::text() const {
  return fmt::format("{}x{}x{} {}{} {} {} {} {} {} {} {} {}", m, n, k, a_transposed ? "t" : "n", b_transposed ? "t" : "n", a_stride,
                     b_stride, c_stride, base::name_of(operands), base::name_of(second.value_or(operands)), base::name_of(result),
                     accumulate ? "+" : "", static_cast<int>(epilogue));
}

std::int64_t LtProblem::workspace() const { return library_workspace(*this) + kWorkspaceAlignment; }

// cuBLASLt thinks in columns: it is told to make the transpose of c, which is b's transpose times a's.
struct LtGemm::State {
  LtProblem problem;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr;   // b
  cublasLtMatrixLayout_t second = nullptr;  // a
  cublasLtMatrixLayout_t result = nullptr;  // c
  cublasLtMatmulAlgo_t algorithm{};

  explicit State(const LtProblem& given) : problem(given) {
    check_lt(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product's description");
    set(CUBLASLT_MATMUL_DESC_TRANSA, problem.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, problem.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(problem.epilogue));
    if (has_pre()) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, problem.c_stride);
    // Sums in the matrix units' own precision (13 bits below the largest addend) are good enough for bf16 results of the forward pass, and
    // twice as fast on some; gradients and f32 results come together in f32 every 128 addends.
    if (problem.scaled()) {
      const bool fast = problem.operands == DType::f8e4m3 && problem.result == DType::bf16;
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{fast});
    }
    first = layout(problem.second.value_or(problem.operands), problem.n, problem.k, problem.b_transposed, problem.b_stride);
    second = layout(problem.operands, problem.k, problem.m, problem.a_transposed, problem.a_stride);
    result = layout(problem.result, problem.n, problem.m, false, problem.c_stride);
  }
  ~State() {
    for (cublasLtMatrixLayout_t each : {first, second, result}) cublasLtMatrixLayoutDestroy(each);
    cublasLtMatmulDescDestroy(operation);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  bool has_pre() const {
    return problem.epilogue == Epilogue::gelu || problem.epilogue == Epilogue::gelu_bias || problem.epilogue == Epilogue::dgelu;
  }
  bool has_bias() const { return problem.epilogue == Epilogue::bias || problem.epilogue == Epilogue::gelu_bias; }

  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    check_lt(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value), "a product's attribute");
  }

  static cublasLtMatrixLayout_t layout(DType dtype, std::int64_t rows, std::int64_t columns, bool transposed, std::int64_t stride) {
    cublasLtMatrixLayout_t made = nullptr;
    const auto high = static_cast<std::uint64_t>(transposed ? columns : rows);
    const auto wide = static_cast<std::uint64_t>(transposed ? rows : columns);
    check_lt(cublasLtMatrixLayoutCreate(&made, type_of(dtype), high, wide, stride), "a matrix's layout");
    return made;
  }

  cublasStatus_t run(const LtOperands& with, const cublasLtMatmulAlgo_t& by, cudaStream_t stream) {
    if (has_bias()) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, with.bias);
    if (has_pre()) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, with.pre);
    if (problem.scaled()) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(with.scale_b));
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(with.scale_a));
    }
    const float one = 1.0f;
    const float beta = problem.accumulate ? 1.0f : 0.0f;
    return cublasLtMatmul(handle(), operation, &one, with.b, first, with.a, second, &beta, problem.accumulate ? with.present : with.c,
                          result, with.c, result, &by, aligned(with.workspace), static_cast<std::size_t>(library_workspace(problem)),
                          stream);
  }

  // Sums that are cut into parts come together in f32 and in a fixed order: neither atomics nor 16-bit partial sums.
  std::vector<cublasLtMatmulHeuristicResult_t> candidates() {
    cublasLtMatmulPreference_t preference = nullptr;
    check_lt(cublasLtMatmulPreferenceCreate(&preference), "a preference");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check_lt(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), "a preference");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(library_workspace(problem)));
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(attribute, std::uint32_t{64});
    if (has_bias()) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(64));
    if (has_pre()) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, reinterpret_cast<void*>(64));
    std::vector<cublasLtMatmulHeuristicResult_t> found(kCandidates);
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle(), operation, first, second, result, result, preference, kCandidates, found.data(), &count);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS || count == 0) {
      base::bad_input("cuBLASLt has no algorithm for {} ({}); its version is {}", problem.text(), cublasLtGetStatusString(status),
                      cublasLtGetVersion());
    }
    found.resize(static_cast<std::size_t>(count));
    return found;
  }

  void choose(LtChoice choice) {
    if (choice == LtChoice::first) {
      algorithm = candidates().front().algo;
      return;
    }
    const std::string key = key_of(problem);
    const std::lock_guard lock(measured().mutex);
    const auto known = measured().algorithms.find(key);
    if (known != measured().algorithms.end() && runs(known->second)) {
      algorithm = known->second;
      return;
    }
    algorithm = fastest(candidates());
    measured().algorithms[key] = algorithm;
  }

  // What comes from a file may be of another build of the library.
  bool runs(const cublasLtMatmulAlgo_t& stored) {
    cublasLtMatmulHeuristicResult_t found{};
    return cublasLtMatmulAlgoCheck(handle(), operation, first, second, result, result, &stored, &found) == CUBLAS_STATUS_SUCCESS &&
           found.workspaceSize <= static_cast<std::size_t>(library_workspace(problem));
  }

  cublasLtMatmulAlgo_t fastest(const std::vector<cublasLtMatmulHeuristicResult_t>& found) {
    // What a launch takes longer than the product itself is not worth measuring.
    if (found.size() == 1 || library_workspace(problem) < (std::int64_t{32} << 20)) return found.front().algo;
    Scratch scratch;
    const std::int64_t operand = base::size_of(problem.operands);
    const std::int64_t output = base::size_of(problem.result);
    LtOperands with;
    with.a = scratch.take((problem.a_transposed ? problem.k : problem.m) * problem.a_stride * operand, problem.operands);
    with.b = scratch.take((problem.b_transposed ? problem.n : problem.k) * problem.b_stride * operand,
                          problem.second.value_or(problem.operands));
    with.c = scratch.take(problem.m * problem.c_stride * output, problem.result);
    with.present = with.c;
    with.pre = has_pre() ? scratch.take(problem.m * problem.c_stride * output, problem.result) : with.c;
    with.bias = scratch.take(problem.n * output, problem.result);
    with.scale_a = with.scale_b = static_cast<const float*>(scratch.take(sizeof(float), DType::f32));
    with.workspace = static_cast<std::byte*>(scratch.take(problem.workspace(), DType::f32));
    if (with.a == nullptr || with.b == nullptr || with.c == nullptr || with.pre == nullptr || with.bias == nullptr ||
        with.scale_a == nullptr || with.workspace == nullptr)
      return found.front().algo;
    std::array<cudaEvent_t, 2> events{};
    for (cudaEvent_t& event : events) check(cudaEventCreate(&event), "cudaEventCreate");
    float best = 0.0f;
    const cublasLtMatmulHeuristicResult_t* chosen = nullptr;
    for (const cublasLtMatmulHeuristicResult_t& candidate : found) {
      if (run(with, candidate.algo, nullptr) != CUBLAS_STATUS_SUCCESS) continue;
      const auto timed = [&](int times) {
        check(cudaEventRecord(events[0], nullptr), "cudaEventRecord");
        for (int timing = 0; timing < times; ++timing) run(with, candidate.algo, nullptr);
        check(cudaEventRecord(events[1], nullptr), "cudaEventRecord");
        check(cudaEventSynchronize(events[1]), problem.text());
        float milliseconds = 0.0f;
        check(cudaEventElapsedTime(&milliseconds, events[0], events[1]), "cudaEventElapsedTime");
        return milliseconds / static_cast<float>(times);
      };
      if (chosen != nullptr && timed(1) > kHopeless * best) continue;
      const float milliseconds = timed(kTimings);
      // The library's own order counts where the clock cannot tell.
      if (chosen == nullptr || milliseconds < 0.98f * best) {
        best = milliseconds;
        chosen = &candidate;
      }
    }
    for (cudaEvent_t event : events) cudaEventDestroy(event);
    PLIMSOLL_CHECK(chosen != nullptr, "none of cuBLASLt's algorithms for {} runs", problem.text());
    return chosen->algo;
  }
};

std::string measured_products() {
  const std::lock_guard lock(measured().mutex);
  std::string lines;
  for (const auto& [key, algorithm] : measured().algorithms) {
    lines += key + "\t";
    for (const std::uint64_t word : algorithm.data) lines += fmt::format("{:016x}", word);
    lines += "\n";
  }
  return lines;
}

void remember_products(std::string_view lines) {
  const std::lock_guard lock(measured().mutex);
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    const std::size_t tab = line.rfind('\t');
    if (tab == std::string_view::npos || line.size() - tab - 1 != kAlgorithmWords * kWordDigits) continue;
    cublasLtMatmulAlgo_t algorithm{};
    bool good = true;
    for (std::size_t word = 0; word < kAlgorithmWords; ++word) {
      const char* digits = line.data() + tab + 1 + word * kWordDigits;
      const auto [stop, error] = std::from_chars(digits, digits + kWordDigits, algorithm.data[word], 16);
      good = good && error == std::errc{} && stop == digits + kWordDigits;
    }
    if (good) measured().algorithms.emplace(std::string(line.substr(0, tab)), algorithm);
  }
}

LtGemm::LtGemm(const LtProblem& problem, LtChoice choice) : state_(std::make_shared<State>(problem)) { state_->choose(choice); }

void LtGemm::launch(const LtOperands& operands, cudaStream_t stream) const {
  check_lt(state_->run(operands, state_->algorithm, stream), state_->problem.text());
}

}  // namespace plimsoll::kernels::cuda
