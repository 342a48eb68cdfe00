#pragma once
// What the benches share: times and their spread, methods that take turns, training steps, option values, the
// page, and what a node's processors can do and did for others. Then what tests call of each bench.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/comm/algorithms/algorithm.h"
#include "lockstep/parallel/team.h"
#include "tools/bench/bench.h"
#include "tools/report/page.h"
#include "trainer/step/step.h"

namespace lockstep::bench {

using Clock = std::chrono::steady_clock;

/// In seconds.
inline double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Spread {
  double mean = 0, least = 0, median = 0, most = 0;
  size_t at_most = 0;  // which number it is
};
/// Of at least one number.
Spread spread_of(std::vector<double> numbers);

/// In each round every method takes its turn, so that other load on the machine affects all alike. `measure`
/// returns the numbers of one turn on this rank, the same count for all. Returns for each method the medians
/// over the rounds of each number's largest value over the ranks. `warm_up`: rounds before these, which do
/// not count. Collective.
std::vector<std::vector<double>> interleaved_medians(
    const Team& team, size_t methods, int warm_up, int rounds,
    const std::function<std::vector<double>(size_t method, int round)>& measure);

/// The steps of a config's training, without logs, evaluations and checkpoints.
class TrainingSteps {
 public:
  /// The model comes from the config's seed. `setup` outlives this. Collective.
  explicit TrainingSteps(const train::Setup& setup);
  TrainingSteps(TrainingSteps&&) = delete;

  /// Begins an epoch if the next step is its first; a task that acts does so here. Collective.
  void make_ready();
  /// Takes the next step, of the next epoch after the last one of an epoch. Collective.
  void take();

  /// Waits for the GPU.
  void read_pending() { losses_.read_pending(); }
  const train::LossTrace& losses() const { return losses_; }
  const train::Learner& learner() const { return learner_; }
  train::PhaseClock& clock() { return clock_; }
  /// Of this rank, in all steps taken.
  int64_t samples() const { return samples_; }

 private:
  train::Learner learner_;
  train::TrainingStep step_;
  const train::Feed feed_;
  train::TrainingState state_;
  train::PhaseClock clock_;
  train::LossTrace losses_;
  int64_t samples_ = 0;
  std::unique_ptr<train::EpochFeed> epoch_;
};

/// "200us", "1.5ms", "0": seconds. InputError otherwise.
double parse_latency(const std::string& text);
/// "1Gbit", "100Mbit": bytes per second; "0": no limit. InputError otherwise.
double parse_bandwidth(const std::string& text);
/// "4,1K,16K,8M": bytes, whole floats, growing. InputError otherwise.
std::vector<int64_t> parse_sizes(const std::string& text);

/// "200 us a message, 1 Gbit/s per link"
std::string delay_text(double latency, double bandwidth);

/// InputError unless `file` is empty or ends in .html.
void check_out(const std::string& file);
/// On rank 0: InputError where `file` cannot be written. Every rank throws it. Collective.
void check_place(const Team& team, const std::string& file);
/// On rank 0: prints the page's text, or `json` where it is not empty, and writes the page if `file` is not
/// empty. Collective.
void report_on_first(const Team& team, const std::string& file, const report::Page& page,
                     const std::string& json = {});

// --- the processors ---

/// Operations a second of this rank in large fp32 matrix products of libtorch, while all ranks compute them.
/// Takes a fifth of a second. Collective.
double measure_peak(const Team& team);

/// Processor time in seconds: of the node since it started, and of this process.
struct ProcessorTime {
  double all = 0, idle = 0, stolen = 0;  // zero where the kernel does not report them
  double own = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProcessorTime, all, idle, stolen, own)
ProcessorTime processor_time();
ProcessorTime operator-(const ProcessorTime& a, const ProcessorTime& b);

/// On some node. Collective.
bool has_more_ranks_than_cores(const Team& team);
/// Whether it holds on any rank. Collective.
bool is_on_any_rank(const Team& team, bool holds);

// --- all_reduce.cpp ---

/// A way to sum over the ranks.
struct SumMethod {
  std::string name;
  std::function<void(at::Tensor&)> sum;  // in place; returns when it is done
  at::Device device = at::kCPU;
  const Algorithm* algorithm = nullptr;  // whose formula is printed beside it
  ProcessGroup shares = {};  // if set: the tensors lie in this group's shared memory, as DDP's buckets
};

/// The group's all-reduce; `in_place`: of tensors in the group's shared memory.
SumMethod through(const std::string& name, const ProcessGroup& group, at::Device device = at::kCPU,
                  bool in_place = false);

/// Seconds for `bytes` of floats, way by way: the median over the rounds of the slowest rank's time.
/// `line_up`, a barrier, comes before each turn. Error, on all ranks alike, if a sum is wrong. Collective.
std::vector<double> measured(const Team& team, const std::vector<SumMethod>& ways, int64_t bytes, int rounds,
                             const std::function<void()>& line_up);

struct TimeCurve {
  std::string name;
  std::vector<double> seconds;           // one for each size
  const Algorithm* algorithm = nullptr;  // null: not one of lockstep's
  std::vector<double> model = {};        // the seconds of its formula
};
/// Which of the curves is the fastest, by size: "all_to_all up to 4 KiB, then ring".
std::string crossovers(const std::vector<int64_t>& sizes, const std::vector<TimeCurve>& curves);

// --- overlap.cpp ---

/// A method's step in seconds: all of it, how long the exchange was at work, and how much of that came after
/// the last gradient, when there was nothing else to do. And its loss.
struct Timing {
  std::string name = {};
  double seconds = 0, busy = 0, shows = 0, loss = 0;
};
report::Table table_of(const std::vector<Timing>& timings);

// --- step.cpp ---

/// One rank's; times are seconds a step. The names are those of --json.
struct RankSteps {
  std::string host;
  int threads = 1;
  train::PhaseSeconds phases{};                // means: they add up to the step
  double median = 0, min = 0, max = 0;         // of a step
  double flop_forward = 0, flop_backward = 0;  // operations of a step
  double peak_flops = 0;                       // operations a second; 0 = not measured
  ProcessorTime processors;                    // while the steps ran

  double phase(train::Phase phase) const { return phases[static_cast<size_t>(phase)]; }
  /// The mean of a step.
  double step() const;
  /// What it does not wait for others.
  double own_work() const;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankSteps, host, threads, phases, median, min, max, flop_forward,
                                   flop_backward, peak_flops, processors)

/// How much arithmetic a part of a step had in how long, over the ranks.
struct Speed {
  const char *key, *name;
  double a_step = 0;    // operations, of all ranks
  double a_second = 0;  // of all ranks together
  double of_peak = 0;   // of what they could, from 0 to 1; 0 where that is not known
};
/// Of "forward", "backward", "both", "step".
std::vector<Speed> speeds_of(const std::vector<RankSteps>& ranks);

struct StepResult {
  StepBench asked;
  nlohmann::ordered_json training;  // what was trained, and how: "task", "model", "device", ...
  int nodes = 1;
  int64_t warm_up = 0;
  int64_t steps = 0;     // timed
  double samples = 0;    // of all ranks in a step
  bool crowded = false;  // more ranks than cores
  bool diverged = false;
  std::vector<RankSteps> ranks = {};

  /// No peak of a GPU is measured, so parts of a step have nothing to be compared with.
  bool has_peak() const { return training.at("device") == "cpu"; }
  /// Was there arithmetic that could be counted?
  bool is_counted() const { return speeds_of(ranks).back().a_step > 0; }
};

/// A line for each node that other processes used too much for a reliable measurement.
std::vector<std::string> busy_nodes(const std::vector<RankSteps>& ranks);

/// A row for each phase and one for the step: the mean over the ranks and, with several ranks, their spread
/// and who has the most.
report::Table phase_table(const std::vector<RankSteps>& ranks);

/// What a reader has to know to read the numbers rightly.
std::vector<std::string> notes_of(const StepResult& result);

report::Page page_of(const StepResult& result);
std::string json_of(const StepResult& result);

}  // namespace lockstep::bench
