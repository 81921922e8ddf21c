// The module's side of nccl.h.
#include <map>

#include <fmt/format.h>

#include "collectives/nccl/device_fold.h"
#include "collectives/nccl/group.h"
#include "collectives/nccl/join_here.h"

namespace plimsoll::collectives::nccl {

namespace {

void take_device(int device) {
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices); error != cudaSuccess || devices == 0) {
    base::bad_input("no GPU can be used: {}", error != cudaSuccess ? cudaGetErrorString(error) : "there is none");
  }
  if (device >= devices) base::bad_input("LOCAL_RANK is {}, but this machine has {} GPUs; NCCL needs one for each rank", device, devices);
  check(cudaSetDevice(device), "cudaSetDevice");
}

class NcclTransport final : public Transport {
 public:
  NcclTransport(const Launch& launch, const Options& options) : launch_(launch), meeting_(std::make_shared<Meeting>()) {
    meeting_->limits = options.limits;
    meeting_->canonical = options.canonical;
    if (launch.ranks > 1) {
      meeting_->rendezvous =
          std::make_unique<Rendezvous>(launch, Rendezvous::Options{.limits = options.limits, .join = options.join, .say = options.say});
    }
    try {
      take_device(launch.local_rank);
      if (options.canonical && launch.ranks > kMostFolded)
        base::not_legal("canonical sums are over at most {} ranks, found {}; use \"communication.sums\": \"fast\"", kMostFolded,
                        launch.ranks);
    } catch (const base::Error& error) {
      abort(error.what(), error.kind());
      throw;
    }
  }

  int rank() const override { return launch_.rank; }
  int size() const override { return launch_.ranks; }
  bool takes_device_memory() const override { return true; }
  std::string description() const override { return meeting_->canonical ? "NCCL, canonical sums" : "NCCL"; }

  std::unique_ptr<Group> make_group(std::span<const int> ranks, std::string name) override {
    check(cudaSetDevice(launch_.local_rank), "cudaSetDevice");  // of this thread
    const int member = position_of(rank(), ranks, size(), name);
    std::string key = fmt::format("group {}", name);
    for (const int rank : ranks) key += fmt::format(" {}", rank);
    key += fmt::format(" #{}", made_[key]++);
    return recorded(
        std::make_unique<NcclGroup>(std::move(name), std::vector<int>(ranks.begin(), ranks.end()), member, std::move(key), meeting_));
  }

  void abort(const std::string& reason, base::ErrorKind /*kind*/) final {
    if (meeting_->rendezvous) meeting_->rendezvous->report_loss(fmt::format("failed: {}", reason));
  }

 private:
  Launch launch_;
  std::shared_ptr<Meeting> meeting_;
  std::map<std::string, int> made_;
};

}  // namespace

std::unique_ptr<Transport> join_here(const Launch& launch, const Options& options) {
  return std::make_unique<NcclTransport>(launch, options);
}

}  // namespace plimsoll::collectives::nccl
