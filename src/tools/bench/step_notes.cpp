// What has to be known to read the numbers of `bench step` rightly.
#include "lockstep/base/format.h"
#include "tools/bench/step_report.h"
#include "tools/bench/units.h"

namespace lockstep::bench {
namespace {

constexpr double kUnevenPeak = 0.2;  // of a peak: less is noise

void note_peaks(const StepFound& found, std::vector<std::string>& notes) {
  const auto peaks = spread_over(found.ranks, [](const RankSteps& rank) { return rank.peak.flops; });
  if (peaks.least < (1 - kUnevenPeak) * peaks.most)
    notes.push_back(format("the ranks' peaks differ: {}/s to {}/s (rank {})", work_text(peaks.least),
                           work_text(peaks.most), peaks.at_most));
  if (found.missing > kUnevenPeak)
    notes.push_back(format("the machine was uneven: {} of its peak was not there before or after the steps",
                           percent_text(found.missing)));
  if (arithmetic(found.ranks, StepPart::both).of_peak > 1)
    notes.emplace_back("above 100 %: libtorch has wider vectors than the probe, or needs fewer operations");
}

}  // namespace

std::vector<std::string> notes_of(const StepFound& found) {
  std::vector<RankTime> times;
  for (const auto& rank : found.ranks) times.push_back({rank.host, rank.processors});
  auto notes = busy_nodes(times);
  if (found.crowded) notes.emplace_back("more ranks than cores: they wait for one another's turns");
  if (found.diverged)
    notes.emplace_back("a loss was no number: `lockstep train` with this config ends there");
  const auto& training = found.training;
  if (!found.has_parts()) notes.emplace_back("phases are the GPU's own time; no peak of a GPU is probed");
  if (training.precision != "fp32")
    notes.push_back(format("the peak is of fp32: {} has instructions of its own", training.precision));
  if (training.kernels != "exact")
    notes.emplace_back("counted is what libtorch would do: kernels of our own may need fewer operations");
  if (!found.is_counted())
    notes.emplace_back("no matrix product and no convolution was seen: the arithmetic is not counted");
  if (found.has_parts()) note_peaks(found, notes);
  if (found.ranks.front().update_bytes == 0)
    notes.emplace_back("the optimiser's memory is not counted: it is sharded, and sends parameters around");
  return notes;
}

}  // namespace lockstep::bench
