#pragma once
// What `lockstep bench step` found, in words, tables, bars and JSON.

#include <string>
#include <vector>

#include "tools/bench/curves.h"
#include "tools/bench/step.h"
#include "tools/bench/step_times.h"

namespace lockstep::bench {

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

/// A row for each phase and one for the step: the mean over the ranks and, where there are several, their
/// spread and who has the most.
Table phase_table(const std::vector<RankSteps>& ranks);

/// What has to be known to read the numbers rightly.
std::vector<std::string> notes_of(const StepFound& found);

std::string text_of(const StepFound& found);
std::string json_of(const StepFound& found);

/// On standard output, and into the file that was asked for.
void tell(const StepFound& found);

}  // namespace lockstep::bench
