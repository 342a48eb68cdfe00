#pragma once
// What each rank measured of its steps, and what that says of them together.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/bench/machine_use.h"
#include "tools/bench/peak.h"
#include "tools/bench/work.h"
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

/// As text that travels between ranks, and back.
std::string packed(const RankSteps& steps);
RankSteps unpacked(const std::string& text);

struct RankSpread {
  double mean = 0, least = 0, median = 0, most = 0;
  size_t at_most = 0;  // the rank that has it
};
/// Of one number or more, one a rank.
RankSpread spread_of(std::vector<double> numbers);

/// Of what `number` says of each rank.
RankSpread spread_over(const std::vector<RankSteps>& ranks,
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

}  // namespace lockstep::bench
