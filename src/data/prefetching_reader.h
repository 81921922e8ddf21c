// Reads the next batches on a thread of its own while the current one is trained on.
//
// What a batch holds is learnt from the first request. It is told the order of reading (batch_share.h gives a rank's). A request that is
// not the expected one is answered directly and reading ahead goes on from there, so the bytes are always those of the source it decorates.
// An error met while reading ahead is thrown by the request it belongs to.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "data/batch.h"

namespace plimsoll::data {

struct PrefetchOptions {
  std::int64_t depth = 2;  // batches held ready, of the inputs that were asked for last
  std::function<SampleRange(const SampleRange&)> order;
};

class PrefetchingReader final : public BatchSource {
 public:
  PrefetchingReader(std::shared_ptr<const BatchSource> source, PrefetchOptions options);
  PrefetchingReader(const PrefetchingReader&) = delete;
  PrefetchingReader& operator=(const PrefetchingReader&) = delete;
  ~PrefetchingReader() override;

  // One request at a time.
  std::int64_t read(const SampleRange& range, const BatchView& batch) const override;

 private:
  struct Slot;
  struct Shared;

  void work() const;
  // Both with the mutex held.
  std::shared_ptr<Slot> first_unread() const;
  void expect_after(const SampleRange& range, const BatchView& like) const;

  std::shared_ptr<const BatchSource> source_;
  PrefetchOptions options_;
  std::unique_ptr<Shared> shared_;
  std::thread worker_;
};

}  // namespace plimsoll::data
