#pragma once
// What people ask of a run that is on: a small file in its folder, which rank 0 looks for when the ranks
// agree. Its text is the number of the attempt that is meant; an empty one means whichever is on.

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trainer/run_folder/folder.h"
#include "trainer/run_folder/status.h"

namespace lockstep::run_folder {

enum class RunRequest { stop, checkpoint };
constexpr std::array<RunRequest, 2> kRequests = {RunRequest::stop, RunRequest::checkpoint};

/// FOLDER/stop.request, FOLDER/checkpoint.request.
std::filesystem::path request_file(const std::filesystem::path& folder, RunRequest request);

/// Asks that attempt of the run.
void ask(const std::filesystem::path& folder, RunRequest request, int64_t attempt);

/// Rank 0's side, for one attempt.
class Requests {
 public:
  /// What earlier attempts were asked is forgotten, and what asks whichever is on: it meant one of those.
  Requests(std::filesystem::path folder, int64_t attempt);
  /// Looks wherever the run writes now: in the successor of a folder that was removed.
  Requests(std::shared_ptr<HeldFolder> folder, int64_t attempt);

  /// Was it asked for? The folder is looked at once a second at most.
  bool asked(RunRequest request);
  /// It is done, or will never be: the file goes, which is the answer.
  void answer(RunRequest request);

 private:
  using Clock = std::chrono::steady_clock;

  void look();
  bool is_there(RunRequest request) const;
  std::optional<std::string> meant_for(RunRequest request) const;
  Requests(std::function<std::filesystem::path()> where, int64_t attempt);

  std::function<std::filesystem::path()> where_;
  int64_t attempt_;
  std::array<bool, kRequests.size()> asked_{};
  Clock::time_point looked_{};
};

// A run that is asked for something (request.h), until it has done that.

/// InputError where the run is not on.
RunStatus status_of_running(const std::filesystem::path& folder);

/// The run's status once the request is done or the run is over; `before`: as it was asked. Error where it
/// has failed, ends without a word, or takes longer than so many seconds.
RunStatus await_answer(const std::filesystem::path& folder, RunRequest request, const RunStatus& before,
                       double seconds);

}  // namespace lockstep::run_folder
