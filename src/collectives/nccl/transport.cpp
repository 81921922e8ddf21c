// The module's side of nccl.h.
#include <chrono>
#include <cstdlib>
#include <map>
#include <thread>

#include <fmt/format.h>

#include "collectives/nccl/device_fold.h"
#include "collectives/nccl/group.h"
#include "collectives/nccl/join_here.h"

namespace plimsoll::collectives::nccl {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook{50};
constexpr std::chrono::milliseconds kToTakeDown{2500};  // from a loss until all is freed and told

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
    if (meeting_->rendezvous)
      watcher_ = std::jthread([this, last_words = options.last_words](const std::stop_token& stop) { watch(stop, last_words); });
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
  void watch(const std::stop_token& stop, const std::function<void(const Transport&, const std::string&)>& last_words) const {
    std::optional<Clock::time_point> since;
    for (; !stop.stop_requested(); std::this_thread::sleep_for(kLook)) {
      const auto loss = meeting_->loss();
      if (!loss) continue;
      if (!since) since = Clock::now();
      if (Clock::now() - *since < kToTakeDown) continue;
      if (last_words) last_words(*this, *loss);
      std::_Exit(static_cast<int>(base::ErrorKind::peer_lost));
    }
  }

  Launch launch_;
  std::shared_ptr<Meeting> meeting_;
  std::map<std::string, int> made_;
  std::jthread watcher_;  // the last member: it looks at the others
};

}  // namespace

std::unique_ptr<Transport> join_here(const Launch& launch, const Options& options) {
  return std::make_unique<NcclTransport>(launch, options);
}

}  // namespace plimsoll::collectives::nccl
