#include "data/prefetching_reader.h"

#include <algorithm>

#include "base/error.h"

namespace plimsoll::data {

// A batch read ahead: asked for, then being read, then ready. Shared ownership lets the worker finish one that was
// thrown away meanwhile.
struct PrefetchingReader::Slot {
  Slot(const SampleRange& wanted, const BatchView& like) : range(wanted), view(like) {
    for (BatchField& field : view.fields) field.bytes = memory.emplace_back(field.bytes.size());
  }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  SampleRange range;
  std::deque<std::vector<std::byte>> memory;  // of each field
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
  PLIMSOLL_CHECK(options_.depth >= 1 && options_.order, "prefetch options");
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

void PrefetchingReader::expect_after(const SampleRange& range, const BatchView& like) const {
  SampleRange last = shared_->slots.empty() ? range : shared_->slots.back()->range;
  while (static_cast<std::int64_t>(shared_->slots.size()) < options_.depth) {
    last = options_.order(last);
    shared_->slots.push_back(std::make_shared<Slot>(last, like));
  }
  shared_->changed.notify_all();
}

namespace {

bool holds_the_same(const BatchView& a, const BatchView& b) {
  return a.rows == b.rows && std::ranges::equal(a.fields, b.fields, [](const BatchField& one, const BatchField& other) {
           return one.name == other.name && one.type == other.type;
         });
}

}  // namespace

std::int64_t PrefetchingReader::read(const SampleRange& range, const BatchView& batch) const {
  std::shared_ptr<Slot> slot;
  {
    std::unique_lock lock(shared_->mutex);
    auto& slots = shared_->slots;
    if (!slots.empty() && (slots.front()->range != range || !holds_the_same(slots.front()->view, batch))) slots.clear();
    if (!slots.empty()) {
      slot = slots.front();
      shared_->changed.wait(lock, [&] { return slot->ready; });
      slots.pop_front();
    }
    expect_after(range, batch);
  }
  if (slot == nullptr) return source_->read(range, batch);
  if (slot->error) std::rethrow_exception(slot->error);
  for (std::size_t field = 0; field < batch.fields.size(); ++field)
    std::ranges::copy(slot->view.fields[field].bytes, batch.fields[field].bytes.begin());
  return slot->valid;
}

}  // namespace plimsoll::data
