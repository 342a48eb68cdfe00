// `lockstep eval`: the metrics of any checkpoint, at any world size.
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/run_folder/console.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/run.h"
#include "lockstep/train/saved.h"
#include "lockstep/train/setup.h"
#include "lockstep/train/task_memory.h"

namespace lockstep::train {

int evaluate_checkpoint(const Command& command, const std::string& checkpoint) {
  auto setup = join_job(command);
  const auto [path, tree] = read_saved(*setup.team, checkpoint);
  if (!recall(setup, tree) || !load_evaluation(setup)) load_data(setup);
  const auto net = seeded_model(setup);
  load_module_state_dict(*net, find_state_dict(tree, path), path);
  net->to(setup.team->device());
  const auto metrics = evaluate(*setup.team, *net, *setup.task, setup.data, setup.settings);
  run_folder::Console console(setup.team->first());
  console.line(format("{} on {} samples", path, setup.data.eval->size()));
  console.line(metrics->report());
  setup.team->barrier();
  return kDone;
}

}  // namespace lockstep::train
