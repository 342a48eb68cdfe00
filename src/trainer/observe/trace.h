#pragma once
// What a rank did when: the spans of its last steps in memory, and trace.json, which shows those of all ranks
// on one time line.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/parallel/comm_hook.h"
#include "lockstep/parallel/team.h"
#include "trainer/config/settings.h"
#include "trainer/run_folder/folder.h"

namespace lockstep::train {

enum class SpanKind : int16_t {
  data,
  forward,
  backward,
  waiting,
  optimizer,
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

  /// Keeps the last `steps` steps, and never more than `room` spans.
  Tracer(int64_t steps, size_t room) : steps_(steps), ring_(std::max<size_t>(1, room)) {}

  void begin_step(int64_t number) { step_.store(number, std::memory_order_relaxed); }
  int64_t step() const { return step_.load(std::memory_order_relaxed); }

  /// From any thread.
  void add(SpanKind kind, Clock::time_point begin, Clock::time_point end) noexcept {
    add(kind, begin, end, step());
  }
  /// Of an earlier step.
  void add(SpanKind kind, Clock::time_point begin, Clock::time_point end, int64_t step) noexcept {
    add({stamp(begin), stamp(end), step, 0, kind, -1});
  }
  void add(const Span& span) noexcept;

  static int64_t stamp(Clock::time_point moment) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(moment.time_since_epoch()).count();
  }
  static int64_t now() { return stamp(Clock::now()); }

  /// Oldest first.
  std::vector<Span> spans() const;
  int64_t steps() const { return steps_; }

 private:
  const int64_t steps_;
  std::atomic<int64_t> step_ = 0;
  mutable std::mutex mutex_;  // buckets are done in other threads
  std::vector<Span> ring_;
  size_t next_ = 0;
  bool full_ = false;
};

/// A span of its own lifetime; nothing without a tracer.
class ScopedSpan {
 public:
  ScopedSpan(Tracer* tracer, SpanKind kind) : tracer_(tracer), kind_(kind) {
    if (tracer_) begin_ = Tracer::Clock::now();
  }
  ~ScopedSpan() {
    if (tracer_) tracer_->add(kind_, begin_, Tracer::Clock::now());
  }
  ScopedSpan(const ScopedSpan&) = delete;
  ScopedSpan& operator=(const ScopedSpan&) = delete;

 private:
  Tracer* tracer_;
  SpanKind kind_;
  Tracer::Clock::time_point begin_;
};

/// `hook`, or DDP's mean without one, with a span for each bucket: from full to summed. The bits stay the
/// same.
CommHook with_spans(CommHook hook, const ProcessGroup& group, std::shared_ptr<Tracer> tracer);

// Named ranges for Nsight Systems (NVTX), through the hooks of libtorch's own profiler: no header of CUDA's.

/// A step, and its phases one after the other.
class Ranges {
 public:
  Ranges() = default;
  ~Ranges() { leave(); }
  Ranges(const Ranges&) = delete;
  Ranges& operator=(const Ranges&) = delete;

  void begin_step(int64_t number, const char* phase);
  void enter(const char* phase);
  void leave();

 private:
  void close(int left);
  int open_ = 0;  // of this thread: a step, a phase in it
};

/// `hook`, or the usual all-reduce, with a range around each bucket's start.
CommHook with_ranges(CommHook hook, const ProcessGroup& group);

// trace.json, for Chrome's and Perfetto's viewers.

/// All ranks' clocks against rank 0's, in rank order. Collective.
std::vector<base::ClockReading> compare_clocks(const Team& team);

struct RankTrace {
  int rank = 0;
  std::string host;
  std::vector<Span> spans;
  base::ClockReading clock;
};

/// The file's text, piece by piece.
void write_trace(const std::vector<RankTrace>& ranks, const std::string& note, const base::ByteSink& sink);

/// None where train.trace is 0.
std::shared_ptr<Tracer> make_tracer(const Settings& settings, size_t parameters);

class TraceKeeper {
 public:
  /// Does nothing without a tracer. `folder` is rank 0's.
  TraceKeeper(const Team& team, std::shared_ptr<Tracer> tracer,
              std::shared_ptr<run_folder::HeldFolder> folder)
      : team_(team), tracer_(std::move(tracer)), folder_(std::move(folder)) {}

  /// Writes the file of all ranks; a failure is a warning. Collective.
  void finish();
  /// After a failure: the file of this rank alone, if there is none yet.
  void save_own(const std::string& why) noexcept;

  Tracer* tracer() const { return tracer_.get(); }

 private:
  void write(const std::vector<RankTrace>& ranks, const std::string& note) noexcept;

  const Team& team_;
  std::shared_ptr<Tracer> tracer_;
  std::shared_ptr<run_folder::HeldFolder> folder_;
  bool written_ = false;
};

}  // namespace lockstep::train
