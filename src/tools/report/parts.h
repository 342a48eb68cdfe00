#pragma once
// The parts of a report's page, each HTML from what was read of the runs; empty where there is nothing to
// show.

#include <string>
#include <vector>

#include "tools/report/run_data.h"

namespace lockstep::report {

using Runs = std::vector<RunData>;

/// The result of each run, on top.
std::string summary(const Runs& runs);
/// Loss, accuracy, learning rate, samples a second.
std::string curves(const Runs& runs);
/// Confusion matrix and worst samples of the last evaluation.
std::string evaluation(const Runs& runs);
/// Where each rank's time went.
std::string phases(const Runs& runs);
/// The trace's last steps.
std::string time_line(const Runs& runs);
/// Stops and restarts, hosts and versions.
std::string attempts(const Runs& runs);
/// What differs, and each config.
std::string configs(const Runs& runs);
/// What could not be read.
std::string troubles(const Runs& runs);

/// A heading where there are several runs.
std::string run_heading(const Runs& runs, const RunData& run);

}  // namespace lockstep::report
