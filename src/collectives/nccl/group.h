// A group of GPUs: a communicator and stream for collectives, and one of each for messages to higher and to lower members. See nccl.h.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/group.h"
#include "collectives/nccl/checks.h"
#include "collectives/rendezvous.h"

namespace plimsoll::collectives::nccl {

// Device memory that grows and is freed with its owner.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer();
  std::byte* at_least(std::size_t bytes);

 private:
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

// What the ranks of a transport share with its groups.
struct Meeting {
  std::unique_ptr<Rendezvous> rendezvous;  // null for one rank alone
  Limits limits;
  bool canonical = false;
  std::optional<std::string> loss() const { return rendezvous ? rendezvous->loss() : std::nullopt; }
};

// A communicator that does not block, and its stream: whoever waits keeps an eye on the others.
class Channel {
 public:
  Channel(Meeting& meeting, const ncclUniqueId& id, int members, int member, const std::function<std::string()>& complain);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  ncclComm_t comm() const { return comm_; }
  cudaStream_t stream() const { return stream_; }
  // NCCL has accepted what was asked for.
  void settle(const char* what);
  // All that was asked for is done.
  void finish(const char* what);

 private:
  void wait_while(const std::function<bool()>& busy, const char* what);

  Meeting& meeting_;
  std::function<std::string()> complain_;  // a clause about what this rank waits in, and who differs
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

class NcclGroup final : public Group {
 public:
  NcclGroup(std::string name, std::vector<int> ranks, int member, std::string key, std::shared_ptr<Meeting> meeting);
  ~NcclGroup() override;

  Traffic traffic() const override { return traffic_; }

 private:
  void do_all_reduce(const Call& call, Input in, Output out) override;
  void do_reduce_scatter(const Call& call, Input in, Output out, Counts counts) override;
  void do_all_gather(const Call& call, Input in, Output out, Counts counts) override;
  void do_broadcast(const Call& call, Output data) override;
  void do_reduce(const Call& call, Input in, Output out) override;
  void do_all_to_all(const Call& call, Input in, Counts in_counts, Output out, Counts out_counts) override;
  void do_barrier(const Call& call) override;
  void do_send(const Call& call, Input data) override;
  void do_receive(const Call& call, Output data) override;

  // Tensors of the host go through the device; these are few and small (what ranks tell each other between steps).
  class Staged;
  static bool on_host(const void* memory);

  struct Part {
    std::size_t first = 0;
    std::size_t bytes = 0;
  };
  static std::vector<Part> parts_of(Counts counts, base::DType dtype);
  void reduce_parts(const Call& call, Input in, const std::vector<Part>& parts, std::byte* own_part, std::byte* whole);
  void fold_here(const Call& call, const std::vector<const std::byte*>& in, std::byte* out, std::size_t bytes);
  Channel& towards(int member) { return *channels_[member > rank() ? 1 : 2]; }
  ncclUniqueId shared_id(int channel);
  std::string complain();
  void moved(std::int64_t sent, std::int64_t received);

  std::string key_;
  std::shared_ptr<Meeting> meeting_;
  Call current_;                                      // before the channels, which complain of it while they are made
  std::array<std::unique_ptr<Channel>, 3> channels_;  // collectives, messages up, messages down
  Channel& all_;
  DeviceBuffer scratch_, pointers_, word_;
  struct Sent {
    std::unique_ptr<DeviceBuffer> copy;
    cudaEvent_t done = nullptr;
  };
  std::vector<Sent> under_way_;
  Traffic traffic_;
};

}  // namespace plimsoll::collectives::nccl
