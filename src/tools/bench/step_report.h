#pragma once
// What `lockstep bench step` found, in words, tables, bars and JSON.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/bench/machine.h"
#include "tools/bench/measure.h"
#include "tools/bench/step.h"
#include "tools/bench/work.h"
#include "tools/report/page.h"
#include "trainer/observe/phase_clock.h"

namespace lockstep::bench {

/// One rank's; times are seconds a step.
struct RankSteps {
  std::string host;
  int threads = 1;
  train::PhaseSeconds phases{};               // means: they add up to the step
  double median = 0, least = 0, longest = 0;  // of a step
  Work work;                                  // of a step
  Peak peak;
  double update_bytes = 0;   // that the optimiser has to read and write
  double update_holds = 0;   // and where they lie
  double cache = 0;          // of its processor
  ProcessorTime processors;  // while the steps ran

  /// The mean of a step.
  double step() const;
  /// What it does not wait for others.
  double own_work() const;
};

/// As text to send between ranks, and back.
std::string packed(const RankSteps& steps);
RankSteps unpacked(const std::string& text);

/// Of what `number` says of each rank.
Spread spread_over(const std::vector<RankSteps>& ranks,
                   const std::function<double(const RankSteps&)>& number);

/// How much there was to do in how long, over the ranks.
struct Speed {
  double a_step = 0;    // operations or bytes, of all ranks
  double a_second = 0;  // of all ranks together
  double of_peak = 0;   // of what they could, from 0 to 1; 0 where that is not known
};
enum class StepPart { forward, backward, both, whole_step };
struct PartName {
  StepPart part;
  const char *key, *name;
};
inline constexpr PartName kParts[] = {{StepPart::forward, "forward", "forward"},
                                      {StepPart::backward, "backward", "backward"},
                                      {StepPart::both, "both", "forward and backward"},
                                      {StepPart::whole_step, "step", "the whole step"}};
Speed arithmetic(const std::vector<RankSteps>& ranks, StepPart part);
Speed update(const std::vector<RankSteps>& ranks);

struct StepFound {
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
  double missing = 0;  // of all ranks' arithmetic peak, at the other end of the steps
  std::vector<RankSteps> ranks = {};

  /// No peak of a GPU is probed, so parts of a step have nothing to be compared with.
  bool has_parts() const { return training.device == "cpu"; }
  /// Was there arithmetic that could be seen?
  bool is_counted() const { return arithmetic(ranks, StepPart::whole_step).a_step > 0; }
};

/// A row for each phase and one for the step: the mean over the ranks and, with several ranks, their spread
/// and who has the most.
report::Table phase_table(const std::vector<RankSteps>& ranks);

/// What a reader has to know to read the numbers rightly.
std::vector<std::string> notes_of(const StepFound& found);

report::Page page_of(const StepFound& found);
std::string json_of(const StepFound& found);

}  // namespace lockstep::bench
