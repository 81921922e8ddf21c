// A transport: one rank's door to all the others, and what makes groups of them.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "collectives/group.h"

namespace plimsoll::collectives {

// How long to wait, in seconds, before a silent rank is called lost. Both are settings, not properties of a machine.
struct Limits {
  double heartbeat = 5.0;   // without a sign of life from its process: a stopped or vanished one
  double progress = 600.0;  // alive, but not joining a call that the others wait in
};

// Another rank that said by itself that it cannot go on, and what kind of error that was.
struct Failure {
  int rank = 0;
  base::ErrorKind kind = base::ErrorKind::other;
};

class Transport {
 public:
  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string description() const = 0;  // "local threads", for the log

  // Whether tensors may lie in the memory of a GPU, which whoever else has copies to the host first.
  virtual bool takes_device_memory() const { return false; }

  // Collective over `ranks` (in this order, this rank among them): all of them call it, in the same order as their other
  // make_group calls that have ranks in common. The name tells groups apart in messages.
  virtual std::unique_ptr<Group> make_group(std::span<const int> ranks, std::string name) = 0;

  // Tells all other ranks that this one cannot go on: whoever waits, or comes to wait, gets peer_lost naming this rank and
  // the reason. The first reason given stays.
  virtual void abort(const std::string& reason, base::ErrorKind kind) = 0;

  // Who did so, as far as it is known here; where several did, the lowest of them that this rank has heard of. Nothing where ranks were
  // lost in silence, or where the transport does not carry it.
  virtual std::optional<Failure> failure_elsewhere() { return std::nullopt; }

  std::unique_ptr<Group> make_world(std::string name);  // of all ranks

  // What the groups of this rank did last.
  const CallLog& calls() const { return *log_; }

 protected:
  // Every transport's make_group ends with this.
  std::unique_ptr<Group> recorded(std::unique_ptr<Group> group) {
    group->record_in(log_);
    return group;
  }

 private:
  std::shared_ptr<CallLog> log_ = std::make_shared<CallLog>();
};

// Of any exception: `other` for what is not a base::Error.
base::ErrorKind kind_of(const std::exception& error);

// This rank's position in a new group's ranks; stops when they are not different ranks of the transport with this one among them.
int position_of(int rank, std::span<const int> ranks, int transport_size, std::string_view name);

}  // namespace plimsoll::collectives
