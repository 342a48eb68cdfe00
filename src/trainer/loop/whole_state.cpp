#include "trainer/loop/whole_state.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/train/hook_memory.h"
#include "lockstep/train/machine.h"
#include "lockstep/train/resumable.h"
#include "trainer/loop/same_bits.h"

namespace lockstep::train {
namespace {

std::string layout_of(const Mesh& mesh) {
  return format("tensor {}, pipeline {}", mesh.shape().tensor, mesh.shape().pipeline);
}

Tree gather_losses(const Team& team, const TrainingState& state) {
  const auto mine = torch::tensor({state.loss_sum, static_cast<double>(state.loss_count)}, torch::kFloat64);
  return torch::stack(team.all_gather(mine));
}

int64_t format_of(const Tree& memory) {
  const auto scale = memory.isNone() ? std::nullopt : find(memory, "label_scale");
  return scale && !scale->isNone() ? kCheckpointFormat : kFirstFormat;
}

Tree extras(const Mesh& mesh, const TrainingState& state, const Learner& learner, const std::string& config) {
  const auto dict = make_dict({{"format", format_of(learner.memory)},
                               {"world", int64_t{mesh.data().world()}},
                               {"consumed", state.consumed},
                               {"step_in_epoch", state.step_in_epoch},
                               {"epoch_trained", state.epoch_trained},
                               {"seconds", state.seconds},
                               {"metrics_offset", state.metrics_offset},
                               {"best_loss", state.best_loss},
                               {"epochs_without_better", state.epochs_without_better},
                               {"losses", gather_losses(mesh.data(), state)},
                               {"config", config},
                               {"task", learner.memory}});
  put_machine(dict);
  put_run_facts(mesh.all(), dict);
  put_generators(mesh.all(), dict, gpus_of(mesh.all(), learner.model->devices()));
  if (const auto own = learner.source->state_dict(state); !own.isNone()) put(dict, "acting", own);
  put(dict, "schedule", learner.schedule->state_dict());
  if (learner.scaler) put(dict, "scaler", learner.scaler->state_dict());
  put(dict, "buckets", tree_of(learner.model->buckets()));
  put_hook_memory(mesh.all(), learner.model->ddp_core(), layout_of(mesh), dict);
  return dict;
}

int64_t count_in(const Tree& dict, const char* key) {
  constexpr int64_t kMost = 1'000'000'000'000'000;  // more than a run can reach
  const auto count = as_int(get(dict, key), key);
  if (count >= 0 && count <= kMost) return count;
  throw InputError(format("\"{}\" in the checkpoint is {}, which no run can reach", key, count), key,
                   "take an earlier checkpoint");
}

void restore_losses(const Team& team, const Tree& extras, TrainingState& state) {
  const auto losses = as_tensor(get(extras, "losses"), "lockstep.losses").to(torch::kFloat64).contiguous();
  if (losses.dim() != 2 || losses.size(1) != 2) {
    throw InputError("\"losses\" in the checkpoint is not a pair of numbers for each rank", "lockstep.losses",
                     "take an earlier checkpoint");
  }
  const bool same_world = losses.size(0) == team.world();
  // at another world size rank 0 carries what was summed so far
  if (!same_world && !team.first()) return;
  const auto mine = same_world ? losses[team.rank()] : losses.sum(0);
  state.loss_sum = mine[0].item<double>();
  state.loss_count = static_cast<int64_t>(mine[1].item<double>());
}

void restore_schedule(Schedule& schedule, const Tree& state) {
  try {
    schedule.load_state_dict(state);
  } catch (const InputError& error) {  // another schedule keeps other numbers
    throw InputError(
        std::string("the checkpoint's schedule is not the config's: ") + error.what(), "schedule.name",
        "resume with the schedule that the checkpoint was trained with, or with schedule.name: none");
  }
}

// Else a sample's number is not what it was, nor what is left of an epoch.
void compare_samples(const Tree& extras, const Tree& own) {
  const auto saved = find(extras, "task");
  if (!saved || saved->isNone() || own.isNone()) return;
  const auto before = find(*saved, "identity"), now = find(own, "identity");
  if (!before || !now ||
      as_string(*before, "lockstep.task.identity") == as_string(*now, "lockstep.task.identity"))
    return;
  log::warning(
      "the samples or the names of their classes are not those that the checkpoint was trained on: the bits "
      "will not be those of a run that went through");
}

TrainingState from_own(const Mesh& mesh, const Tree& tree, const Tree& extras, Learner& learner) {
  TrainingState state;
  state.step = count_in(tree, "iter_no");
  state.epoch = count_in(tree, "epoch");
  state.consumed = count_in(extras, "consumed");
  state.step_in_epoch = count_in(extras, "step_in_epoch");
  state.epoch_trained = as_bool(get(extras, "epoch_trained"), "epoch_trained");
  state.seconds = as_double(get(extras, "seconds"), "seconds");
  state.metrics_offset = count_in(extras, "metrics_offset");
  state.best_loss = as_double(get(extras, "best_loss"), "best_loss");
  state.epochs_without_better = count_in(extras, "epochs_without_better");
  restore_losses(mesh.data(), extras, state);
  restore_schedule(*learner.schedule, get(extras, "schedule"));
  if (const auto scaler = find(extras, "scaler"); scaler && learner.scaler)
    learner.scaler->load_state_dict(*scaler);
  restore_generators(mesh.all(), extras, gpus_of(mesh.all(), learner.model->devices()));
  if (const auto list = find(extras, "buckets")) {
    const auto buckets = buckets_of(*list);
    if (!buckets.empty()) learner.model->restore_buckets(buckets);
  }
  restore_hook_memory(mesh.all(), learner.model->ddp_core(), layout_of(mesh), extras);
  compare_samples(extras, learner.memory);
  return state;
}

// A file that Python wrote says which iteration it is, if anything.
TrainingState from_python(const Tree& tree, const Rounds& rounds) {
  TrainingState state;
  if (find(tree, "iter_no")) state.step = count_in(tree, "iter_no");
  state.epoch = state.step / rounds.steps_per_epoch;
  state.step_in_epoch = state.step % rounds.steps_per_epoch;
  state.consumed = state.step_in_epoch * rounds.step_samples;
  log::info(format(
      "the checkpoint is not lockstep's own: going on from step {}, epoch {}; schedule and random numbers "
      "start afresh",
      state.step, state.epoch));
  return state;
}

}  // namespace

Tree to_checkpoint(const Mesh& mesh, const TrainingState& state, const Learner& learner,
                   const std::string& config) {
  const auto more = extras(mesh, state, learner, config);
  const auto model = learner.model->state_dict();
  const auto optimizer = learner.model->whole_optimizer(learner.optimizer->state_dict());
  if (!mesh.all().first()) return make_dict();
  return make_dict({{"iter_no", state.step},
                    {"epoch", state.epoch},
                    {"model", model},
                    {"optimizer", optimizer},
                    {kTrainerKey, more}});
}

TrainingState from_checkpoint(const Mesh& mesh, const Tree& tree, const std::string& file, Learner& learner) {
  const auto extras = find(tree, kTrainerKey);
  learner.model->load_state_dict(find_state_dict(tree, file), file);
  if (const auto optimizer = find(tree, "optimizer")) {
    const auto own = learner.model->own_optimizer(*optimizer);
    mesh.all().together(
        [&] { learner.optimizer->load_state_dict(own); });  // one rank's may be another's bad part
  }
  auto state = extras ? from_own(mesh, tree, *extras, learner) : from_python(tree, learner.rounds);
  learner.source->restore(extras ? find(*extras, "acting") : std::nullopt, state);
  return state;
}

}  // namespace lockstep::train
