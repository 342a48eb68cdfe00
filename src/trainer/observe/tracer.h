#pragma once
// What a rank did when: the spans of its last steps, in memory that was taken at the start.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

namespace lockstep::train {

enum class SpanKind : int16_t {
  data,
  forward,
  backward,
  waiting,
  optimiser,
  other,
  evaluation,
  checkpoint,
  all_reduce,
  count
};
/// "data", ..., "all-reduce".
const char* name_of(SpanKind kind);

/// From when to when, in nanoseconds of this rank's clock.
struct Span {
  int64_t begin = 0, end = 0;
  int64_t step = 0, bytes = 0;
  SpanKind kind = SpanKind::other;
  int16_t bucket = -1;
};

class Tracer {
 public:
  using Clock = std::chrono::steady_clock;

  /// A clock that is `ahead` of the host's and runs `rate` times as fast, for tests.
  struct Skew {
    std::chrono::nanoseconds ahead{0};
    double rate = 1;
  };

  /// Keeps the last `steps` steps, and never more than `room` spans.
  Tracer(int64_t steps, size_t room);
  Tracer(int64_t steps, size_t room, Skew skew);

  /// What follows belongs to this step.
  void begin_step(int64_t number) { step_.store(number, std::memory_order_relaxed); }
  int64_t step() const { return step_.load(std::memory_order_relaxed); }

  /// From any thread.
  void add(SpanKind kind, Clock::time_point begin, Clock::time_point end) noexcept {
    add(kind, begin, end, step());
  }
  /// Of a step that has gone by.
  void add(SpanKind kind, Clock::time_point begin, Clock::time_point end, int64_t step) noexcept {
    add({stamp(begin), stamp(end), step, 0, kind, -1});
  }
  void add(const Span& span) noexcept;

  /// A moment as this rank's clock has it, in nanoseconds.
  int64_t stamp(Clock::time_point moment) const;
  int64_t now() const { return stamp(Clock::now()); }

  /// What is kept, oldest first.
  std::vector<Span> spans() const;
  int64_t steps() const { return steps_; }

 private:
  const int64_t steps_;
  const Skew skew_;
  std::atomic<int64_t> step_ = 0;
  mutable std::mutex mutex_;  // buckets are done in other threads
  std::vector<Span> ring_;
  size_t next_ = 0;
  bool full_ = false;
};

/// A span for as long as it lives; nothing where there is no tracer.
class Traced {
 public:
  Traced(Tracer* tracer, SpanKind kind) : tracer_(tracer), kind_(kind) {
    if (tracer_) begin_ = Tracer::Clock::now();
  }
  ~Traced() {
    if (tracer_) tracer_->add(kind_, begin_, Tracer::Clock::now());
  }
  Traced(const Traced&) = delete;
  Traced& operator=(const Traced&) = delete;

 private:
  Tracer* tracer_;
  SpanKind kind_;
  Tracer::Clock::time_point begin_;
};

}  // namespace lockstep::train
