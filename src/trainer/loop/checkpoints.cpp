#include "trainer/loop/checkpoints.h"

#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/collective/resume_state.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/comm/algorithms/algorithm.h"
#include "lockstep/comm/cuda_plugin.h"

namespace lockstep::train {
namespace {

// Whether a run that is resumed can have the bits of one that was never stopped.

bool is_required(const Setup& setup) {
  return setup.settings.train.exact == SameBits::required;
}

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw InputError(what, "train.exact: required", hint + ", or set train.exact to off");
}

std::string other_world(const Setup& setup, const Tree& extras) {
  const auto world = as_int(get(extras, "world"), "world");
  const auto here = setup.mesh->data().world();
  if (world == here) return "";
  return format("resuming with {} (was {}), so results will differ{}", base::counted(here, "rank"), world,
                setup.settings.train.as_world > 0
                    ? ""
                    : format(". Set train.as_world to {} to keep them identical", world));
}

// gloo's, or the name of what sums in another order.
std::string order_of_sums(const Team& team) {
  if (!team.group()) return "none";
  auto name = team.group()->getBackend(team.device().type())->getBackendName();
  if (name == "shared" || (name == "mpi" && team.world() == 2)) return "gloo";
  for (const auto& algorithm : all_reduce_algorithms())
    if (algorithm.name == name && algorithm.has_bits_of_gloo(team.world())) return "gloo";
  return name;
}

std::string device_kind(const Team& team) {
  const auto device = team.device();
  return device.is_cuda() ? comm::cuda().device_name(device.index()) : "a CPU";
}

// What the bits depend on besides the machine.
std::vector<checkpoint::Fact> facts_of(const Team& team) {
  return {{"threads", std::to_string(at::get_num_threads()), "computed with a thread count of"},
          {"device", device_kind(team), "computed on"},
          {"sums", order_of_sums(team), "computed with sums in the order of"}};
}

}  // namespace

void compare_bits(const Setup& setup, const Tree& checkpoint) {
  const bool required = is_required(setup);
  const auto unrecorded = required ? checkpoint::MissingFact::differs : checkpoint::MissingFact::passes;
  const auto extras = find(checkpoint, checkpoint::kTrainerKey);
  if (!extras && required)
    refuse("the checkpoint was not written by lockstep, so exact resume is impossible", "start a new run");
  if (!extras) return;
  const auto world = other_world(setup, *extras);
  if (required && !world.empty()) refuse(world, "start as many ranks as before, or set train.as_world");
  auto facts = checkpoint::machine_facts();
  if (world.empty()) std::ranges::copy(facts_of(*setup.team), std::back_inserter(facts));
  const auto unlike = checkpoint::differences(*extras, facts, unrecorded);
  if (required && !unlike.empty())
    refuse("exact resume is impossible: the checkpoint was " + base::join(unlike, "; "),
           "resume on the machine and with the settings that wrote it");
  for (const auto& one : unlike)
    log::info(format("the checkpoint was {}. Results may differ from now on", one));
  if (!world.empty()) log::warning(world);
}

void compare_ranks(const Setup& setup) {
  if (setup.settings.train.as_world == 0 && !is_required(setup)) return;
  const auto all =
      setup.team->all_gather(format("{}, {}", checkpoint::processor(), device_kind(*setup.team)));
  const auto other = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one != all[0]; });
  if (other == all.end()) return;
  const auto what =
      format("the ranks run on different processors (rank 0: {}, rank {}: {}), so results will differ",
             all[0], other - all.begin(), *other);
  if (is_required(setup)) refuse(what, "request nodes of one kind");
  log::warning(what);
}

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
  return scale && !scale->isNone() ? checkpoint::kCheckpointFormat : checkpoint::kFirstFormat;
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
  checkpoint::put_facts(dict, checkpoint::machine_facts());
  checkpoint::put_facts(dict, facts_of(mesh.all()));
  checkpoint::put_generators(mesh.all(), dict, checkpoint::gpus_of(mesh.all(), learner.model->devices()));
  if (const auto own = learner.source->state_dict(state); !own.isNone()) put(dict, "acting", own);
  put(dict, "schedule", learner.schedule->state_dict());
  if (learner.scaler) put(dict, "scaler", learner.scaler->state_dict());
  put(dict, "buckets", checkpoint::tree_of(learner.model->buckets()));
  checkpoint::put_hook_memory(mesh.all(), learner.model->ddp_core(), layout_of(mesh), dict);
  return dict;
}

int64_t count_in(const Tree& dict, const char* key) {
  constexpr int64_t kMost = 1'000'000'000'000'000;  // more than a run can reach
  const auto count = as_int(get(dict, key), key);
  if (count >= 0 && count <= kMost) return count;
  throw InputError(format("\"{}\" in the checkpoint is {}, which is not possible", key, count), key,
                   "use an earlier checkpoint");
}

void restore_losses(const Team& team, const Tree& extras, TrainingState& state) {
  const auto losses = as_tensor(get(extras, "losses"), "lockstep.losses").to(torch::kFloat64).contiguous();
  if (losses.dim() != 2 || losses.size(1) != 2)
    throw InputError("\"losses\" in the checkpoint is not a pair of numbers for each rank", "lockstep.losses",
                     "use an earlier checkpoint");
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
        std::string("schedule.name differs from the checkpoint's schedule: ") + error.what(), "schedule.name",
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
      "the checkpoint was trained on other samples or class names; results differ from an uninterrupted run");
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
  checkpoint::restore_generators(mesh.all(), extras,
                                 checkpoint::gpus_of(mesh.all(), learner.model->devices()));
  if (const auto list = find(extras, "buckets")) {
    const auto buckets = checkpoint::buckets_of(*list);
    if (!buckets.empty()) learner.model->restore_buckets(buckets);
  }
  checkpoint::restore_hook_memory(mesh.all(), learner.model->ddp_core(), layout_of(mesh), extras);
  compare_samples(extras, learner.memory);
  return state;
}

// A file that Python wrote says which iteration it is, if anything.
TrainingState from_python(const Tree& tree, const EpochPlan& rounds) {
  TrainingState state;
  if (find(tree, "iter_no")) state.step = count_in(tree, "iter_no");
  state.epoch = state.step / rounds.steps_per_epoch;
  state.step_in_epoch = state.step % rounds.steps_per_epoch;
  state.consumed = state.step_in_epoch * rounds.step_samples;
  log::info(
      format("the checkpoint is not from lockstep: resuming from step {}, epoch {}. The schedule and the "
             "random number generators are reset",
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
                    {checkpoint::kTrainerKey, more}});
}

TrainingState from_checkpoint(const Mesh& mesh, const Tree& tree, const std::string& file, Learner& learner) {
  const auto extras = find(tree, checkpoint::kTrainerKey);
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

namespace {

struct Named {
  std::string name;
  at::Tensor tensor;
};

std::vector<Named> tensors_to_check(const torch::nn::Module& net, const Optimizer& optimizer) {
  std::vector<Named> all;
  std::map<const void*, std::string> names;  // of what the optimizer steps
  for (const auto& item : net.named_parameters()) {
    all.push_back({"parameter " + item.key(), item.value()});
    names.emplace(item.value().unsafeGetTensorImpl(), item.key());
  }
  for (const auto& [index, state] : items(optimizer.held_state())) {
    const auto& param = optimizer.parameters().at(static_cast<size_t>(as_int(index, "state")));
    for (const auto& [key, value] : items(state))
      if (value.isTensor())
        all.push_back(
            {format("the optimizer's {} of {}", as_string(key, "state"), names[param.unsafeGetTensorImpl()]),
             value.toTensor()});
  }
  std::erase_if(all, [](const Named& one) { return !one.tensor.is_floating_point(); });
  return all;
}

// The name of the first that holds a NaN or an infinity; empty where all is well. A sum keeps either, and is
// one pass over the memory; one that merely is too large is looked at again.
std::string first_not_finite(const std::vector<Named>& all) {
  if (all.empty()) return "";
  std::vector<at::Tensor> sums;
  for (const auto& one : all)
    sums.push_back(one.tensor.detach().sum(torch::kFloat64).to(all[0].tensor.device()));
  const auto values = torch::stack(sums).to(torch::kCPU);
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::isfinite(values.data_ptr<double>()[i])) continue;
    if (!torch::isfinite(all[i].tensor).all().item<bool>()) return all[i].name;
  }
  return "";
}

// Collective. Throws if any rank has a NaN or an infinity: a finite loss may have a gradient that is not.
void refuse_not_finite(const Team& team, const Learner& learner, const TrainingState& state) {
  const torch::NoGradGuard no_grad;
  const auto mine = first_not_finite(tensors_to_check(learner.model->net(), *learner.optimizer));
  std::vector<double> found{mine.empty() ? 0.0 : 1.0};
  team.sum(found);
  if (found[0] == 0) return;
  const auto all = team.all_gather(mine);
  const auto first = std::find_if(all.begin(), all.end(), [](const auto& name) { return !name.empty(); });
  throw Error(format("{} is not finite after step {}, so no checkpoint was written", *first, state.step),
              format("epoch {}, rank {}", state.epoch, first - all.begin()),
              "lower optim.lr or set train.clip_norm; earlier checkpoints are kept");
}

bool is_multiple(int64_t number, int64_t every) {
  return every > 0 && number % every == 0;
}

}  // namespace

Checkpoints::Checkpoints(CheckpointContext subject, const TrainingState& state, const RunAttempt& attempt,
                         run_folder::Requests* requests, RunLog& log)
    : subject_(std::move(subject)), log_(log), requests_(requests) {
  if (!attempt.found.empty()) saved_ = state;
  if (!attempt.folder) return;
  const auto store = [folder = attempt.folder, keep = subject_.settings.checkpoint.keep] {
    return CheckpointStore((folder->path() / "checkpoints").string(), keep, [folder] { folder->check(); });
  };
  writer_ = std::make_unique<CheckpointWriter>(store, [&log](const auto& path) { log.saved(path); });
}

bool Checkpoints::is_due(const TrainingState& state) const {
  return is_multiple(state.step, subject_.settings.checkpoint.every_steps) && !state.epoch_trained;
}

bool Checkpoints::is_wanted(const TrainingState& state) {
  if (!requests_) return false;
  answer_when_written(state);
  const double minutes = std::chrono::duration<double, std::ratio<60>>(Clock::now() - saved_at_).count();
  const double every = subject_.settings.checkpoint.every_minutes;
  return (every > 0 && minutes >= every) ||
         (requests_->asked(run_folder::RunRequest::checkpoint) && !answer_is_pending_);
}

void Checkpoints::save(const TrainingState& state, const LossTrace& losses) {
  if (requests_ && requests_->asked(run_folder::RunRequest::checkpoint)) answer_is_pending_ = true;
  if (saved_ && saved_->step == state.step && saved_->epoch == state.epoch &&
      saved_->epoch_trained == state.epoch_trained)
    return;
  take(state, losses, std::exchange(best_is_new_, false) ? Name::both : Name::step);
  saved_ = state;
  saved_at_ = Clock::now();
}

void Checkpoints::save_after_epoch(const TrainingState& state, const LossTrace& losses, bool better,
                                   bool last) {
  best_is_new_ = better && subject_.settings.checkpoint.best;
  if (last) return;
  auto least = std::min<int64_t>(1, subject_.settings.checkpoint.every_epochs);
  for (auto epoch = state.epoch; epoch >= 1000; epoch /= 10) least *= 10;  // such epochs are often short
  if (is_multiple(state.epoch, std::max(least, subject_.settings.checkpoint.every_epochs))) {
    save(state, losses);
  } else if (std::exchange(best_is_new_, false)) {
    take(state, losses, Name::best);
  }
}

void Checkpoints::take(TrainingState state, const LossTrace& losses, Name name) {
  const ScopedSpan span(subject_.learner.tracer.get(), SpanKind::checkpoint);
  refuse_not_finite(subject_.mesh.all(), subject_.learner, state);
  state.seconds = log_.seconds();
  state.metrics_offset = log_.metrics_offset();
  state.loss_sum = losses.sum();
  state.loss_count = losses.count();
  const auto tree = to_checkpoint(subject_.mesh, state, subject_.learner, subject_.config);
  if (!writer_) return;
  write(tree, name);
  log_.note_place(state);
}

void Checkpoints::write(const Tree& tree, Name name) {
  try {
    writer_->submit(tree, name);
    if (std::exchange(fails_, false)) log::info("checkpoints can be written again");
  } catch (const run_folder::FolderLost&) {
    throw;
  } catch (const std::exception& error) {  // the one before: a full disk may have room again
    warn(error);
    writer_->submit(tree, name);
  }
}

void Checkpoints::warn(const std::exception& error) {
  log_.not_saved(describe(error));
  if (std::exchange(fails_, true)) return;
  log::warning("a checkpoint could not be written\n" + describe(error) +
               "\nTraining continues. Further checkpoint failures are not reported.");
}

// The file of the request goes when the checkpoint is whole and the status names it, or cannot be written.
void Checkpoints::answer_when_written(const TrainingState& state) {
  if (!answer_is_pending_ || !writer_->idle()) return;
  answer_is_pending_ = false;
  try {
    writer_->wait();
  } catch (const run_folder::FolderLost&) {
    throw;
  } catch (const std::exception& error) {
    warn(error);
  }
  log_.tell(state, run_folder::RunState::running, "");
  requests_->answer(run_folder::RunRequest::checkpoint);
}

void Checkpoints::finish() {
  subject_.mesh.all().together([this] {
    if (writer_) writer_->wait();
  });
}

}  // namespace lockstep::train
