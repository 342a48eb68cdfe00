#pragma once
// status.json: the state of a run, for people, job scripts and the next attempt; and requests to a run.

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::run_folder {

/// Job scripts resume a run that stopped early, but not one that stopped on request.
enum class RunState { running, stopped_early, done, failed, stopped_on_request };

/// The exit status of `lockstep status` for a run that was stopped on request.
constexpr int kStoppedOnRequest = 4;

/// The cost of restarts: the time between attempts, and the steps that were repeated.
struct RestartCost {
  double seconds = 0;
  int64_t steps = 0;
};

/// What a run has used, all attempts and jobs together. Rank 0 writes it every few seconds, so a crash loses
/// little; `lockstep job` adds the rest at its end.
struct Cost {
  double core_seconds = 0, gpu_seconds = 0;  ///< until `until`
  double queue_seconds = 0;                  ///< its jobs waited, after they could have started
  double cores = 0, gpus = 0;                ///< that it holds now
  double until = 0;                          ///< seconds since 1970
  double peak_memory = 0;                    ///< bytes of the largest rank; 0 = unknown
  double energy_joules = 0;
  std::string energy_source = {};  ///< "RAPL", "NVML", "Slurm, job 12"; empty = not measured
};

/// Continues it in an attempt that begins now. `allocation`: "BEGAN,CORES,GPUS,QUEUED" of the batch job, its
/// begin in seconds since 1970; empty without one: then the ranks' own cores and GPUs count.
void begin_attempt(Cost& cost, const std::string& allocation, double cores, double gpus);

/// Adds the time until now.
void charge(Cost& cost);

/// "1.250 core-hours, 12s in the queue, at most 0.61 GiB per rank, energy not measured".
std::string in_words(const Cost& cost);

struct RunStatus {
  RunState state = RunState::running;
  std::string reason;      // why it stopped or failed: a signal, the deadline, the error
  int64_t step = 0;        // optimizer steps taken
  int64_t epoch = 0;       // epochs finished
  int64_t epochs = 0;      // epochs asked for
  std::string checkpoint;  // the newest one, relative to the folder
  std::string unsaved;     // why a checkpoint since then could not be written; empty = none failed
  std::optional<double> loss, accuracy, reward;
  double seconds = 0;  // trained, all attempts together
  int64_t attempt = 1;
  RestartCost lost;  // before this attempt, all together
  Cost cost;
  int world = 1;
  std::string host, job_id;
  int pid = 0;
  double updated = 0;  // seconds since 1970
};

/// "running", "stopped early", "done", "failed", "stopped on request".
const char* name_of(RunState state);

/// "stopped early: SIGTERM".
std::string state_in_words(const std::string& state, const std::string& reason);

/// What an attempt that begins now at `step` has lost since `before`, the status of the attempt before it.
RestartCost lost_since(const RunStatus& before, int64_t step);

/// Whole or not at all; `ready` as write_whole's.
void write_status(const std::filesystem::path& folder, RunStatus status,
                  const std::function<void()>& ready = {});

/// Throws InputError when the folder holds no readable status.json.
RunStatus read_status(const std::filesystem::path& folder);

/// The exit status of `lockstep status` for a run that is running.
constexpr int kRunning = 3;

/// What `lockstep status` prints, and its exit status. A run that says "running" and is not in use has died.
struct StatusReport {
  std::string text;
  int exit_status;
  RunStatus status;             // of one that has died: failed, and why
  std::string checkpoint = {};  // the newest one's path; empty = none
  std::string outcome = {};     // the text without loss, accuracy and reward
};
StatusReport job_status(const std::filesystem::path& folder);

/// The same for programs: docs/reference/run-folder.md.
std::string to_json(const StatusReport& report);

// Requests to a running run: an empty file in its folder, which rank 0 looks for when the ranks agree.

enum class RunRequest { stop, checkpoint };
constexpr std::array<RunRequest, 2> kRequests = {RunRequest::stop, RunRequest::checkpoint};

/// FOLDER/stop.request, FOLDER/checkpoint.request.
std::filesystem::path request_file(const std::filesystem::path& folder, RunRequest request);

void ask(const std::filesystem::path& folder, RunRequest request);

/// Rank 0's side, for one attempt.
class Requests {
 public:
  /// Removes requests to earlier attempts. Before status.json shows this one.
  explicit Requests(std::filesystem::path folder);

  /// Was it asked for? Looks into the folder once a second at most.
  bool asked(RunRequest request);
  /// It is done, or never will be: removes the file, which is the answer.
  void answer(RunRequest request);

 private:
  using Clock = std::chrono::steady_clock;

  std::filesystem::path folder_;
  std::array<bool, kRequests.size()> asked_{};
  Clock::time_point looked_{};
};

// The asking side.

/// InputError where the run is not on.
RunStatus status_of_running(const std::filesystem::path& folder);

/// The run's status once the request is done or the run is over; `before`: as it was asked. Error where it
/// has failed, ends without a word, or takes longer than so many seconds.
RunStatus await_answer(const std::filesystem::path& folder, RunRequest request, const RunStatus& before,
                       double seconds);

}  // namespace lockstep::run_folder
