#pragma once
// From a command line to everything that a run needs: the job, the settings, the device, the group, the data.

#include <memory>
#include <string>

#include "lockstep/config/load.h"
#include "lockstep/launch/device.h"
#include "lockstep/launch/runtime.h"
#include "lockstep/tasks/task.h"
#include "lockstep/train/run.h"
#include "lockstep/train/team.h"

namespace lockstep::train {

struct Setup {
  std::unique_ptr<launch::Runtime> runtime;  // declared first: MPI outlives the group
  Settings settings;
  std::string config;  // resolved, as YAML
  launch::DeviceChoice device;
  int threads = 1;
  std::unique_ptr<Team> team;
  std::unique_ptr<Task> task;
  TaskData data;
};

/// Joins the job and reads the config, before libtorch is touched; then the device, the group and the task.
Setup join_job(const Command& command);

/// The task's sets, read once a node. Collective.
void load_data(Setup& setup);

/// Both.
Setup set_up(const Command& command);

/// The evaluation set alone, for a checkpoint whose memory was recalled. False where the task needs its data
/// whole. Collective.
bool load_evaluation(Setup& setup);

/// The task's model with its initial parameters, drawn as Python's torch.manual_seed(seed) leaves the
/// generator. InputError, on all ranks, where it does not fit the task's samples and classes. Collective.
std::shared_ptr<Net> seeded_model(const Setup& setup);

}  // namespace lockstep::train
