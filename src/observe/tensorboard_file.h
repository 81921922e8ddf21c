// TensorBoard event files, written by hand: the three protobuf messages that scalars need are a dozen bytes of
// framing, not worth a library.
//
// A file is a run of TFRecords: u64 length, masked CRC-32C of it, the Event message, masked CRC-32C of that (all
// little-endian). Event has wall_time = 1 (double), step = 2 (varint), file_version = 3 (string, first record only)
// and summary = 5; Summary has value = 1 with tag = 1 (string) and simple_value = 2 (float).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "observe/clock.h"
#include "observe/event.h"
#include "observe/sink.h"

namespace plimsoll::observe {

struct Scalar {
  std::string tag;
  double value = 0.0;
};

// TensorBoard finds files by the word "tfevents" and orders them by the time in the name.
std::string event_file_name(double unix_seconds, std::string_view host);

class TensorboardFile final : public Observer {
 public:
  TensorboardFile(Sink sink, const Clock& clock);  // writes the version record at once

  void write(std::int64_t step, const std::vector<Scalar>& scalars);  // one record
  void on(const Event& event) override;

 private:
  void write_record(std::string_view event);

  Sink sink_;
  const Clock& clock_;
};

}  // namespace plimsoll::observe
