#include <chrono>
#include <thread>

#include "collectives/nccl/group.h"

namespace plimsoll::collectives::nccl {

namespace {
using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{20};
}  // namespace

DeviceBuffer::~DeviceBuffer() { cudaFree(memory_); }

std::byte* DeviceBuffer::at_least(std::size_t bytes) {
  if (bytes <= bytes_) return memory_;
  check(cudaFree(memory_), "cudaFree");
  memory_ = nullptr;
  bytes_ = 0;
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "cudaMalloc");
  memory_ = static_cast<std::byte*>(memory);
  bytes_ = bytes;
  return memory_;
}

Channel::Channel(Meeting& meeting, const ncclUniqueId& id, int members, int member, const std::function<std::string()>& complain)
    : meeting_(meeting), complain_(complain) {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  check(ncclCommInitRankConfig(&comm_, members, id, member, &config), "ncclCommInitRankConfig");
  settle("ncclCommInitRankConfig");
}

// Abort and not destroy: destroying waits for the others, who may be gone. All work of this rank is done.
Channel::~Channel() {
  if (comm_ != nullptr) ncclCommAbort(comm_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void Channel::wait_while(const std::function<bool()>& busy, const char* what) {
  const auto start = Clock::now();
  auto looked = start;
  while (busy()) {
    const auto now = Clock::now();
    if (now - looked < kLook) continue;
    looked = now;
    std::optional<std::string> why = meeting_.loss();
    if (!why && std::chrono::duration<double>(now - start).count() > meeting_.limits.progress) {
      why = fmt::format("it did not complete within the limit of {:g} s", meeting_.limits.progress);
    }
    if (!why) continue;
    const std::string where = complain_();
    ncclCommAbort(comm_);
    comm_ = nullptr;
    base::fail(base::ErrorKind::peer_lost, "{} ({}): {}", where, what, *why);
  }
}

void Channel::settle(const char* what) {
  wait_while(
      [&] {
        ncclResult_t state = ncclSuccess;
        check(ncclCommGetAsyncError(comm_, &state), what);
        check(state, what);
        return state == ncclInProgress;
      },
      what);
}

void Channel::finish(const char* what) {
  settle(what);
  wait_while(
      [&] {
        const cudaError_t state = cudaStreamQuery(stream_);
        if (state != cudaErrorNotReady) check(state, what);
        ncclResult_t error = ncclSuccess;
        check(ncclCommGetAsyncError(comm_, &error), what);
        check(error, what);
        return state == cudaErrorNotReady;
      },
      what);
}

}  // namespace plimsoll::collectives::nccl
