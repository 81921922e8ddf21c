#include "data/prefetching_reader.h"

#include <algorithm>

#include "base/error.h"

namespace plimsoll::data {

// A batch read ahead: asked for, then being read, then ready. Shared ownership lets the worker finish one that was
// thrown away meanwhile.
struct PrefetchingReader::Slot {
  Slot(const SampleRange& wanted, std::int64_t rows, std::int64_t sequence)
      : range(wanted), elements(static_cast<std::size_t>(rows * sequence)), memory(elements * 5 + static_cast<std::size_t>(rows)) {
    const auto part = [&](std::size_t index) { return std::span(memory).subspan(index * elements, elements); };
    view = {.rows = rows,
            .sequence = sequence,
            .tokens = part(0),
            .targets = part(1),
            .positions = part(2),
            .segments = part(3),
            .token_types = part(4),
            .samples = std::span(memory).subspan(elements * 5)};
  }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  SampleRange range;
  std::size_t elements;
  std::vector<std::int32_t> memory;
  BatchView view;
  std::int64_t valid = 0;
  std::exception_ptr error;
  bool ready = false;
};

struct PrefetchingReader::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Slot>> slots;  // in reading order
  bool stopping = false;
};

PrefetchingReader::PrefetchingReader(std::shared_ptr<const BatchSource> source, PrefetchOptions options)
    : source_(std::move(source)), options_(std::move(options)), shared_(std::make_unique<Shared>()) {
  PLIMSOLL_CHECK(options_.depth >= 1 && options_.rows >= 1 && options_.sequence >= 1 && options_.order, "prefetch options");
  worker_ = std::thread([this] { work(); });
}

PrefetchingReader::~PrefetchingReader() {
  {
    const std::scoped_lock lock(shared_->mutex);
    shared_->stopping = true;
  }
  shared_->changed.notify_all();
  worker_.join();
}

std::shared_ptr<PrefetchingReader::Slot> PrefetchingReader::first_unread() const {
  for (const std::shared_ptr<Slot>& slot : shared_->slots) {
    if (!slot->ready) return slot;
  }
  return nullptr;
}

void PrefetchingReader::work() const {
  std::unique_lock lock(shared_->mutex);
  for (;;) {
    if (shared_->stopping) return;
    const std::shared_ptr<Slot> slot = first_unread();
    if (slot == nullptr) {
      shared_->changed.wait(lock);
      continue;
    }
    lock.unlock();
    try {
      slot->valid = source_->read(slot->range, slot->view);
    } catch (...) {
      slot->error = std::current_exception();
    }
    lock.lock();
    slot->ready = true;
    shared_->changed.notify_all();
  }
}

void PrefetchingReader::expect_after(const SampleRange& range) const {
  SampleRange last = shared_->slots.empty() ? range : shared_->slots.back()->range;
  while (static_cast<std::int64_t>(shared_->slots.size()) < options_.depth) {
    last = options_.order(last);
    shared_->slots.push_back(std::make_shared<Slot>(last, options_.rows, options_.sequence));
  }
  shared_->changed.notify_all();
}

std::int64_t PrefetchingReader::read(const SampleRange& range, const BatchView& batch) const {
  PLIMSOLL_CHECK(batch.sequence == options_.sequence, "a view of {} positions for batches of {}", batch.sequence, options_.sequence);
  std::shared_ptr<Slot> slot;
  {
    std::unique_lock lock(shared_->mutex);
    auto& slots = shared_->slots;
    if (!slots.empty() && (slots.front()->range != range || batch.rows != options_.rows)) slots.clear();
    if (!slots.empty()) {
      slot = slots.front();
      shared_->changed.wait(lock, [&] { return slot->ready; });
      slots.pop_front();
    }
    expect_after(range);
  }
  if (slot == nullptr) return source_->read(range, batch);
  if (slot->error) std::rethrow_exception(slot->error);
  const auto copy = [](std::span<const std::int32_t> from, std::span<std::int32_t> to) {
    if (to.empty()) return;
    PLIMSOLL_CHECK(to.size() == from.size(), "{} elements for {}", to.size(), from.size());
    std::copy(from.begin(), from.end(), to.begin());
  };
  copy(slot->view.tokens, batch.tokens);
  copy(slot->view.targets, batch.targets);
  copy(slot->view.positions, batch.positions);
  copy(slot->view.segments, batch.segments);
  copy(slot->view.token_types, batch.token_types);
  copy(slot->view.samples, batch.samples);
  return slot->valid;
}

}  // namespace plimsoll::data
