#pragma once
// What people ask of a running run: an empty file in its folder, which rank 0 looks for when the ranks agree.

#include <array>
#include <chrono>
#include <filesystem>
#include <string>

#include "trainer/run_folder/status.h"

namespace lockstep::run_folder {

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
