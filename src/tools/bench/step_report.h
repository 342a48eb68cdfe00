#pragma once
// What `lockstep bench step` found, in words, tables, bars and JSON.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/bench/bench.h"
#include "tools/bench/measure.h"
#include "tools/bench/work.h"
#include "tools/report/page.h"
#include "trainer/observe/phase_clock.h"

namespace lockstep::bench {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Work, forward, backward)

/// One rank's; times are seconds a step.
struct RankSteps {
  std::string host;
  int threads = 1;
  train::PhaseSeconds phases{};               // means: they add up to the step
  double median = 0, least = 0, longest = 0;  // of a step
  Work work;                                  // of a step
  double peak = 0;                            // operations a second; 0 = not measured
  ProcessorTime processors;                   // while the steps ran

  double phase(train::Phase phase) const { return phases[static_cast<size_t>(phase)]; }
  /// The mean of a step.
  double step() const;
  /// What it does not wait for others.
  double own_work() const;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankSteps, host, threads, phases, median, least, longest, work, peak,
                                   processors)

using OfRank = std::function<double(const RankSteps&)>;
Spread spread_over(const std::vector<RankSteps>& ranks, const OfRank& number);

/// How much arithmetic there was to do in how long, over the ranks.
struct Speed {
  double a_step = 0;    // operations, of all ranks
  double a_second = 0;  // of all ranks together
  double of_peak = 0;   // of what they could, from 0 to 1; 0 where that is not known
};
/// A part of a step that has arithmetic.
struct StepPart {
  const char *key, *name;
  double (*work)(const RankSteps&);
  double (*seconds)(const RankSteps&);
};
/// "forward", "backward", "both", "step"
const std::vector<StepPart>& step_parts();
Speed speed_of(const StepPart& part, const std::vector<RankSteps>& ranks);

struct StepResult {
  struct Training {
    std::string task, model, device, backend, mode, precision, layout, kernels;
    int nodes = 1;
  };
  StepBench asked;
  Training training;
  int64_t warm_up = 0;
  int64_t steps = 0;     // timed
  double samples = 0;    // of all ranks in a step
  bool crowded = false;  // more ranks than cores
  bool diverged = false;
  std::vector<RankSteps> ranks = {};

  /// No peak of a GPU is measured, so parts of a step have nothing to be compared with.
  bool has_peak() const { return training.device == "cpu"; }
  /// Was there arithmetic that could be counted?
  bool is_counted() const { return speed_of(step_parts().back(), ranks).a_step > 0; }
};

/// A row for each phase and one for the step: the mean over the ranks and, with several ranks, their spread
/// and who has the most.
report::Table phase_table(const std::vector<RankSteps>& ranks);

/// What a reader has to know to read the numbers rightly.
std::vector<std::string> notes_of(const StepResult& result);

report::Page page_of(const StepResult& result);
std::string json_of(const StepResult& result);

}  // namespace lockstep::bench
