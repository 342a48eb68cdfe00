#pragma once
// From a command line to everything that a run needs: the settings, the session, the task, the data.

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

// One config for the whole job: 10,000 ranks do not open a file 10,000 times, and all ranks report the same
// mistake.

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

/// The config is read, the ranks have not met.
struct StartedJob {
  std::unique_ptr<launch::Runtime> runtime;
  config::Loaded loaded;
  std::string shared;  // what that was made of, for ranks that this process carries
};

/// Reads the config before libtorch is touched.
StartedJob begin_job(const Command& command);

/// Opens a session as the config says, and makes the task.
Setup join_job(const Command& command, StartedJob begun);
Setup join_job(const Command& command);

/// The task's sets, read once a node. Collective.
void load_data(Setup& setup);

/// With data.resident: the training set goes to the ranks' devices. After the model was made. Collective.
void hold_on_device(Setup& setup);

/// join_job and load_data.
Setup set_up(const Command& command, StartedJob begun);
Setup set_up(const Command& command);

/// The evaluation set alone, for a checkpoint whose memory was recalled. False where the task needs its data
/// whole. Collective.
bool load_evaluation(Setup& setup);

/// The task's model, with kernels of our own where train.kernels asks for them.
std::shared_ptr<Net> task_model(const Setup& setup);

/// The same with its initial parameters, drawn as Python's torch.manual_seed(seed) leaves the
/// generator. InputError, on all ranks, where it does not fit the task's samples and classes. Collective.
std::shared_ptr<Net> seeded_model(const Setup& setup);

// train.as_world: as many ranks as the config says, on as many processes as were started.

/// With as_world the sums are those of CPUs also where the ranks compute on GPUs, of which several may share
/// one.
void choose_sums(Settings& settings);

/// Whether this process is to carry ranks instead of being one: train.as_world is another number than that of
/// the processes. InputError where the processes disagree on it.
bool spawns_ranks(const StartedJob& begun);

/// Starts the ranks of this process and returns the status to leave with. Collective.
int spawn_ranks(StartedJob begun);

/// Of a rank; 0 = its share of the cores. With as_world it may not depend on what the processes were given,
/// where the rank trains.
int threads_of_rank(const TrainSettings& train, bool trained);

/// Where train.layout is auto: puts the layout into the settings and the config in which all ranks together
/// take less time for a forward and a backward of one batch, and logs what was measured. Samples without
/// height and width, and grids of ranks, have nchw unmeasured. After the data is there. Collective.
void settle_layout(Setup& setup);

// How libtorch computes on a GPU, for the whole process: TF32, cuDNN's choice of algorithms, the same bits
// each time.

/// As train.tf32, train.cudnn_benchmark and train.deterministic say. Before the first computation.
void choose_arithmetic(const TrainSettings& train);

}  // namespace lockstep::train
