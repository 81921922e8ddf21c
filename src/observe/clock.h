// Time as an argument: whoever measures or prints time is handed a Clock, so that tests decide what time it is.
#pragma once

namespace plimsoll::observe {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual double seconds() const = 0;       // steady, from an arbitrary start
  virtual double unix_seconds() const = 0;  // the calendar's
};

double seconds_now();  // of the steady clock, for durations of what no test decides

class SystemClock final : public Clock {
 public:
  double seconds() const override;
  double unix_seconds() const override;
};

// Stands still until told; for tests and for the simulator's virtual time.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(double unix_start = 0.0) : unix_start_(unix_start) {}
  double seconds() const override { return now_; }
  double unix_seconds() const override { return unix_start_ + now_; }
  void advance(double seconds) { now_ += seconds; }

 private:
  double unix_start_;
  double now_ = 0.0;
};

}  // namespace plimsoll::observe
