#pragma once
// From a command line to all that a run needs: settings, session, task, data.

#include <memory>
#include <string>

#include "lockstep/parallel/mesh.h"
#include "lockstep/parallel/session.h"
#include "lockstep/tasks/task.h"
#include "trainer/config/load.h"
#include "trainer/config/settings.h"
#include "trainer/setup/command.h"

namespace lockstep::train {

struct Setup {
  std::unique_ptr<Session> session;
  const Team* team = nullptr;  // the session's
  std::unique_ptr<Mesh> mesh;  // its ranks as a grid
  std::string backend;         // the session's group's
  Settings settings;
  std::string config;   // resolved, as YAML
  std::string program;  // version and commit
  std::unique_ptr<Task> task;
  TaskData data;
};

// One config for the job: 10,000 ranks do not open a file 10,000 times, and all report the same mistake.

/// Names the descriptor from which a rank that another process started reads what that one has read.
constexpr const char* kHandedConfig = "LOCKSTEP_CONFIG_FD";

struct JobConfig {
  config::Loaded loaded;
  std::string shared;  // what it was made of: the text, and the variables that it names
};

/// With MPI rank 0 reads the file and the environment variables that it names, and the others get both;
/// without MPI each rank reads its own. Libraries that it names are not loaded. `data.stage` alone is
/// expanded with each rank's own environment. An error of rank 0 is thrown on every rank, in the same words.
JobConfig load_for_job(const launch::Runtime& runtime, const std::string& path,
                       const std::vector<std::string>& sets);

/// A job whose config is read and whose ranks have not met.
struct StartedJob {
  std::unique_ptr<launch::Runtime> runtime;
  config::Loaded loaded;
  std::string shared;  // what that was made of, for ranks that this process carries
};

/// Reads the config before libtorch is touched.
StartedJob begin_job(const Command& command);

/// Opens the session and makes the task.
Setup join_job(const Command& command, StartedJob begun);
Setup join_job(const Command& command);

/// Reads the task's sets, once for each node. Collective.
void load_data(Setup& setup);

/// With data.resident, moves the training set to the ranks' devices; after the model is made. Collective.
void move_to_device(Setup& setup);

/// join_job and load_data.
Setup set_up(const Command& command, StartedJob begun);
Setup set_up(const Command& command);

/// Loads only the evaluation set, after recall(). False if the task needs all data. Collective.
bool load_evaluation(Setup& setup);

/// A loss with the class weights of the data, on that device.
LossOptions loss_options(const TaskData& data, at::Device device);

/// The task's model, with the kernels that train.kernels asks for.
std::shared_ptr<Net> task_model(const Setup& setup);

/// The same with the initial parameters that Python draws after torch.manual_seed(seed). InputError on all
/// ranks if it does not fit the task's samples and classes. Collective.
std::shared_ptr<Net> seeded_model(const Setup& setup);

/// With as_world the ranks sum on CPUs even if they compute on GPUs, because several may share one.
void choose_sums(Settings& settings);

/// Whether this process has to start ranks instead of being one: train.as_world differs from the number of
/// processes. InputError if the processes disagree on it.
bool spawns_ranks(const StartedJob& begun);

/// Starts the ranks of this process and returns the status to leave with. Collective.
int spawn_ranks(StartedJob begun);

/// Threads of a rank; 0 = its share of the cores. With as_world ranks use the same number everywhere.
int threads_of_rank(const TrainSettings& train, bool trained);

/// With train.layout: auto, chooses the layout in which a forward and backward of one batch takes all ranks
/// less time, and logs the times. Samples without height and width, and grids of ranks, get nchw. After
/// load_data(). Collective.
void choose_layout(Setup& setup);

/// Applies train.tf32, train.cudnn_benchmark and train.deterministic; before the first computation.
void choose_arithmetic(const TrainSettings& train);

}  // namespace lockstep::train
