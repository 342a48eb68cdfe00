#pragma once
// report.json: what `lockstep report` tells of a run and no other file has: attempts, hosts, phases a rank,
// the last evaluation's mistakes.

#include <chrono>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lockstep/tasks/metrics.h"
#include "trainer/loop/run_log.h"
#include "trainer/observe/phase_clock.h"
#include "trainer/observe/worst_samples.h"
#include "trainer/run_folder/status.h"
#include "trainer/setup/setup.h"

namespace lockstep::train {

class RunFacts {
 public:
  RunFacts(const Setup& setup, const RunAttempt& attempt);
  ~RunFacts();
  RunFacts(const RunFacts&) = delete;
  RunFacts& operator=(const RunFacts&) = delete;

  /// An attempt begins after so many steps. Collective.
  void begin(int64_t step);
  /// An evaluation is over, and was not cut short.
  void evaluated(const Metrics& metrics, WorstSamples worst, int64_t step, int64_t epoch);
  /// The attempt's steps are over: everybody's phases, the worst samples. Collective.
  void finish(const PhaseSeconds& phases);
  /// How it ended.
  void tell(run_folder::RunState state, const std::string& reason, int64_t step,
            const PhaseSeconds& own) noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  void read_before() noexcept;
  void add_worst();
  void write() noexcept;
  bool writes() const { return attempt_.folder != nullptr; }

  const Setup& setup_;
  const RunAttempt attempt_;
  WorstSamples worst_;
  bool worst_is_new_ = false;
  std::unique_ptr<nlohmann::ordered_json> json_;  // rank 0's: the whole file
  Clock::time_point written_{};
};

}  // namespace lockstep::train
