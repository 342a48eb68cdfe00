#pragma once
// What a run reports while it trains: rank 0's console, the records in the run's folder, the summary.

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/parallel/mesh.h"
#include "trainer/config/settings.h"
#include "trainer/observe/energy.h"
#include "trainer/observe/phase_clock.h"
#include "trainer/run_folder/console.h"
#include "trainer/run_folder/recorder.h"
#include "trainer/setup/setup.h"
#include "trainer/step/evaluate.h"
#include "trainer/step/feed.h"

namespace lockstep::train {

/// Where an attempt is in its run, and where it writes.
struct RunAttempt {
  int64_t number = 1;
  std::string path = {};                                // the folder's; empty before a new run has one
  bool continues_run = false;                           // an earlier attempt was there
  std::string found = {};                               // its checkpoint that this one goes on from
  std::shared_ptr<run_folder::HeldFolder> folder = {};  // rank 0's; without it nothing is written
  std::optional<run_folder::RunStatus> before = {};     // rank 0's: how the attempt before ended
  double cores = 0, gpus = 0;                           // of all ranks
  std::vector<std::string> gpus_read = {};              // on the PCI bus: this rank reads their energy
};

struct GpuMemory {
  double peak = 0, total = 0;  // bytes of the rank that held most, and what the smallest of the GPUs has
};
/// How much of their GPUs' memory the ranks' tensors held at most; nothing on CPUs. Collective.
std::optional<GpuMemory> peak_gpu_memory(const Team& team);

class RunLog {
 public:
  /// Cuts the folder's metrics to what `state` includes. The attempt's time begins.
  RunLog(const Settings& settings, const Mesh& mesh, const TrainingState& state, int64_t total_steps,
         const RunAttempt& attempt);

  /// Seconds trained, all attempts together.
  double seconds() const;
  PhaseClock& clock() { return clock_; }

  void begin_epoch();
  /// `of_epoch`: its steps, with those that an earlier attempt took.
  void begin_steps(int64_t of_epoch) { steps_of_epoch_ = of_epoch; }
  void took_step(const TrainingState& state, int64_t samples);
  /// Whether a line is due after this step (train.log_every).
  bool is_due(const TrainingState& state) const;
  void step(const TrainingState& state, double loss, double lr);
  void progress(const TrainingState& state, double loss);
  void begin_evaluation();
  void epoch(const TrainingState& state, double train_loss, const EpochMetrics& measured);
  /// Returns where the time of each rank went. Collective.
  std::vector<PhaseSeconds> summarize(const TrainingState& state);

  /// Notes the ranks' memory and energy for status.json. Collective.
  void exchange_usage();

  /// Does nothing with an empty text.
  void line(const std::string& text) {
    if (!text.empty()) console_.line(text);
  }

  /// For the next write of status.json.
  void note_place(const TrainingState& state);
  /// Writes status.json.
  void tell(const TrainingState& state, run_folder::RunState now, const std::string& reason);
  /// A checkpoint is complete; from any thread.
  void saved(const std::string& checkpoint) { recorder_->saved(checkpoint); }
  /// One could not be written.
  void not_saved(const std::string& reason) { recorder_->not_saved(reason); }
  int64_t metrics_offset() const { return recorder_ ? recorder_->metrics_offset() : 0; }
  void report_failure(const std::string& reason) noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  /// Since when, and this rank's samples then.
  struct Mark {
    Clock::time_point moment = Clock::now();
    int64_t samples = 0;
  };
  Mark now() const { return {Clock::now(), samples_}; }
  double speed_since(const Mark& mark) const;

  const Settings& settings_;
  const Team& team_;
  const int64_t shares_;                    // ranks that take samples of their own
  const int64_t total_steps_, first_step_;  // of the run; before this attempt
  const double seconds_before_;             // of earlier attempts
  PhaseClock clock_;
  const run_folder::Cost cost_before_;
  const bool reads_node_, reads_gpu_;  // reads the energy counters of its node, of its GPU
  EnergyMeter energy_;
  run_folder::Console console_;
  std::unique_ptr<run_folder::Recorder> recorder_;  // where there is a folder
  int64_t samples_ = 0;                             // this rank's
  int64_t steps_of_epoch_ = 0;
  Mark begin_, epoch_begin_, line_begin_;
};

// report.json: attempts, hosts, phases of each rank, the last evaluation's mistakes; for `lockstep report`.
class RunFacts {
 public:
  RunFacts(const Setup& setup, const RunAttempt& attempt);
  ~RunFacts();
  RunFacts(const RunFacts&) = delete;
  RunFacts& operator=(const RunFacts&) = delete;

  /// An attempt begins after `step`. Collective.
  void begin(int64_t step);
  void evaluated(const Metrics& metrics, WorstSamples worst, int64_t step, int64_t epoch);
  /// The attempt's steps are over: the phases of each rank, the worst samples. Collective.
  void finish(const std::vector<PhaseSeconds>& ranks);
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
