#pragma once
// A run that is asked for something (request.h), until it has done that.

#include <filesystem>

#include "trainer/run_folder/request.h"
#include "trainer/run_folder/status.h"

namespace lockstep::run_folder {

/// InputError where the run is not on.
RunStatus status_of_running(const std::filesystem::path& folder);

/// The run's status once the request is done or the run is over; `before`: as it was asked. Error where it
/// has failed, ends without a word, or takes longer than so many seconds.
RunStatus await_answer(const std::filesystem::path& folder, RunRequest request, const RunStatus& before,
                       double seconds);

}  // namespace lockstep::run_folder
