#include "tools/bench/step_times.h"

#include <algorithm>
#include <numeric>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"

namespace lockstep::bench {
namespace {

using train::Phase;

double of(const RankSteps& rank, Phase phase) {
  return rank.phases[static_cast<size_t>(phase)];
}

// What a rank's numbers are, in the order in which they travel.
template <class Steps>
auto numbers_of(Steps& steps) {
  std::vector numbers = {&steps.median,
                         &steps.least,
                         &steps.longest,
                         &steps.work.forward,
                         &steps.work.backward,
                         &steps.peak.flops,
                         &steps.peak.bytes,
                         &steps.update_bytes,
                         &steps.update_holds,
                         &steps.cache,
                         &steps.processors.all,
                         &steps.processors.idle,
                         &steps.processors.stolen,
                         &steps.processors.own};
  for (auto& phase : steps.phases) numbers.push_back(&phase);
  return numbers;
}

struct Done {
  double amount, seconds;
};

Done done_of(const RankSteps& rank, StepPart part) {
  switch (part) {
    case StepPart::forward:
      return {rank.work.forward, of(rank, Phase::forward)};
    case StepPart::backward:
      return {rank.work.backward, of(rank, Phase::backward)};
    case StepPart::both:
      return {rank.work.all(), of(rank, Phase::forward) + of(rank, Phase::backward)};
    case StepPart::whole_step:
      return {rank.work.all(), rank.step()};
  }
  return {};
}

Speed together(const std::vector<Done>& done, double peak) {
  Speed speed;
  for (const auto& [amount, seconds] : done) {
    speed.a_step += amount;
    if (seconds > 0) speed.a_second += amount / seconds;
  }
  if (peak > 0) speed.of_peak = speed.a_second / peak;
  return speed;
}

}  // namespace

double RankSteps::step() const {
  return std::accumulate(phases.begin(), phases.end(), 0.0);
}

double RankSteps::own_work() const {
  return step() - of(*this, Phase::waiting) - of(*this, Phase::other);
}

std::string packed(const RankSteps& steps) {
  std::ostringstream text;
  text.precision(17);
  text << steps.threads;
  for (const double* number : numbers_of(steps)) text << ' ' << *number;
  return base::pack_texts({text.str(), steps.host});
}

RankSteps unpacked(const std::string& text) {
  const auto texts = base::unpack_texts(text);
  RankSteps steps;
  steps.host = texts.at(1);
  std::istringstream words(texts.at(0));
  words >> steps.threads;
  for (double* number : numbers_of(steps)) words >> *number;
  if (!words) throw Error("a rank sent malformed timings", "bench step");
  return steps;
}

RankSpread spread_of(std::vector<double> numbers) {
  const auto at_most = std::max_element(numbers.begin(), numbers.end()) - numbers.begin();
  const size_t count = numbers.size();
  std::sort(numbers.begin(), numbers.end());
  return {.mean = std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(count),
          .least = numbers.front(),
          .median = (numbers[(count - 1) / 2] + numbers[count / 2]) / 2,
          .most = numbers.back(),
          .at_most = static_cast<size_t>(at_most)};
}

RankSpread spread_over(const std::vector<RankSteps>& ranks,
                       const std::function<double(const RankSteps&)>& number) {
  std::vector<double> numbers;
  for (const auto& rank : ranks) numbers.push_back(number(rank));
  return spread_of(std::move(numbers));
}

Speed arithmetic(const std::vector<RankSteps>& ranks, StepPart part) {
  std::vector<Done> done;
  double peak = 0;
  for (const auto& rank : ranks) {
    done.push_back(done_of(rank, part));
    peak += rank.peak.flops;
  }
  return together(done, peak);
}

Speed update(const std::vector<RankSteps>& ranks) {
  std::vector<Done> done;
  double peak = 0;
  for (const auto& rank : ranks) {
    done.push_back({rank.update_bytes, of(rank, Phase::optimiser)});
    peak += rank.peak.bytes;
  }
  return together(done, peak);
}

}  // namespace lockstep::bench
