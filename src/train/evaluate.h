#pragma once
// Exact evaluation: each sample on exactly one rank, sums over ranks, the same answer at any world size.

#include <memory>

#include "config/settings.h"
#include "tasks/task.h"
#include "train/team.h"

namespace lockstep::train {

/// The metrics over the whole set, on every rank. Collective. The net is left in training mode.
std::unique_ptr<Metrics> evaluate(const Team& team, Net& net, const Task& task, const TaskData& data,
                                  const Settings& settings);

/// A metric by its name, if it is there.
std::optional<double> value_of(const Metrics& metrics, const std::string& name);

}  // namespace lockstep::train
