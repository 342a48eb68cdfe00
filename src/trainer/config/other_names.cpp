#include "trainer/config/other_names.h"

#include <algorithm>
#include <cctype>

#include "lockstep/base/format.h"

namespace lockstep::config {
namespace {

constexpr size_t kMostShown = 20;  // a screen of them is enough to begin with

// "\n  1. what", and its other lines below that
std::string numbered(size_t number, const InputError& error) {
  std::string text = format("\n  {}. ", number);
  for (const char c : describe(error)) text += c == '\n' ? std::string("\n   ") : std::string(1, c);
  return text;
}

}  // namespace

void Mistakes::refuse() const {
  if (found_.empty()) return;
  if (found_.size() == 1) throw InputError(found_[0]);
  std::string text = format("{} mistakes in the config", found_.size());
  for (size_t i = 0; i < std::min(found_.size(), kMostShown); ++i) text += numbered(i + 1, found_[i]);
  if (found_.size() > kMostShown) text += format("\n  and {} more", found_.size() - kMostShown);
  throw InputError(text, found_[0].where(), "fix them all; lockstep config CONFIG.yaml looks again");
}

namespace {

constexpr OtherName kOfKeys[] = {
    {"run_name", "run.name"},
    {"experiment", "run.name"},
    {"experiment_name", "run.name"},
    {"output_dir", "run.dir"},
    {"out_dir", "run.dir"},
    {"save_dir", "run.dir"},
    {"log_dir", "run.dir"},
    {"logdir", "run.dir"},
    {"random_seed", "run.seed"},
    {"manual_seed", "run.seed"},
    {"random_state", "run.seed"},
    {"gpu", "launch.device"},
    {"cuda", "launch.device"},
    {"accelerator", "launch.device"},
    {"dist_backend", "launch.backend"},
    {"ddp_backend", "launch.backend"},
    {"ddp_timeout", "launch.timeout"},
    {"dataset", "task.name"},
    {"val_file", "task.eval_file"},
    {"test_file", "task.eval_file"},
    {"val_split", "task.eval_fraction"},
    {"validation_split", "task.eval_fraction"},
    {"test_size", "task.eval_fraction"},
    {"num_classes", "task.classes"},
    {"num_labels", "task.classes"},
    {"max_seq_length", "task.max_length"},
    {"max_seq_len", "task.max_length"},
    {"image_size", "task.size"},
    {"img_size", "task.size"},
    {"data_dir", "data.root"},
    {"data_path", "data.root"},
    {"dataset_path", "data.root"},
    {"batch", "data.batch_size"},
    {"bs", "data.batch_size"},
    {"batchsize", "data.batch_size"},
    {"mini_batch_size", "data.batch_size"},
    {"train_batch_size", "data.batch_size"},
    {"micro_batch_size", "data.batch_size"},
    {"per_device_train_batch_size", "data.batch_size"},
    {"num_workers", "data.workers"},
    {"n_workers", "data.workers"},
    {"dataloader_num_workers", "data.workers"},
    {"dataloader_drop_last", "data.drop_last_batch"},
    {"arch", "model.name"},
    {"architecture", "model.name"},
    {"net", "model.name"},
    {"network", "model.name"},
    {"model_name", "model.name"},
    {"model_name_or_path", "model.path"},
    {"pretrained", "model.path"},
    {"hidden_size", "model.hidden"},
    {"hidden_sizes", "model.hidden"},
    {"hidden_layers", "model.hidden"},
    {"hidden_dim", "model.hidden"},
    {"find_unused", "ddp.find_unused_parameters"},
    {"ddp_find_unused_parameters", "ddp.find_unused_parameters"},
    {"bucket_cap", "ddp.bucket_cap_mb"},
    {"ddp_bucket_cap_mb", "ddp.bucket_cap_mb"},
    {"sync_bn", "ddp.sync_batchnorm"},
    {"sync_batch_norm", "ddp.sync_batchnorm"},
    {"tensor_parallel", "parallel.tensor"},
    {"tensor_parallel_size", "parallel.tensor"},
    {"tp", "parallel.tensor"},
    {"pipeline_parallel", "parallel.pipeline"},
    {"pipeline_parallel_size", "parallel.pipeline"},
    {"pp", "parallel.pipeline"},
    {"optimizer", "optim.name"},
    {"optimiser", "optim.name"},
    {"opt", "optim.name"},
    {"learning_rate", "optim.lr"},
    {"learningrate", "optim.lr"},
    {"base_lr", "optim.lr"},
    {"init_lr", "optim.lr"},
    {"lr0", "optim.lr"},
    {"wd", "optim.weight_decay"},
    {"l2", "optim.weight_decay"},
    {"decay", "optim.weight_decay"},
    {"epsilon", "optim.eps"},
    {"adam_epsilon", "optim.eps"},
    {"beta1", "optim.betas"},
    {"beta2", "optim.betas"},
    {"adam_beta1", "optim.betas"},
    {"adam_beta2", "optim.betas"},
    {"zero", "optim.sharded"},
    {"zero_stage", "optim.sharded"},
    {"scheduler", "schedule.name"},
    {"lr_scheduler", "schedule.name"},
    {"lr_scheduler_type", "schedule.name"},
    {"lr_schedule", "schedule.name"},
    {"warmup", "schedule.warmup_steps"},
    {"num_warmup_steps", "schedule.warmup_steps"},
    {"lr_step_size", "schedule.step_size"},
    {"lr_gamma", "schedule.gamma"},
    {"epoch", "train.epochs"},
    {"num_epochs", "train.epochs"},
    {"n_epochs", "train.epochs"},
    {"max_epochs", "train.epochs"},
    {"total_epochs", "train.epochs"},
    {"num_train_epochs", "train.epochs"},
    {"steps", "train.max_steps"},
    {"num_steps", "train.max_steps"},
    {"max_iter", "train.max_steps"},
    {"max_iters", "train.max_steps"},
    {"max_train_steps", "train.max_steps"},
    {"max_time", "train.max_seconds"},
    {"amp", "train.precision"},
    {"fp16", "train.precision"},
    {"bf16", "train.precision"},
    {"dtype", "train.precision"},
    {"mixed_precision", "train.precision"},
    {"memory_format", "train.layout"},
    {"channels_last", "train.layout"},
    {"cuda_graph", "train.graph"},
    {"grad_accum", "train.accumulate"},
    {"accumulation_steps", "train.accumulate"},
    {"accumulate_grad_batches", "train.accumulate"},
    {"gradient_accumulation", "train.accumulate"},
    {"gradient_accumulation_steps", "train.accumulate"},
    {"grad_clip", "train.clip_norm"},
    {"clip_grad", "train.clip_norm"},
    {"clip_grad_norm", "train.clip_norm"},
    {"max_grad_norm", "train.clip_norm"},
    {"gradient_clipping", "train.clip_norm"},
    {"gradient_clip_val", "train.clip_norm"},
    {"smoothing", "train.label_smoothing"},
    {"label_smoothing_factor", "train.label_smoothing"},
    {"print_freq", "train.log_every"},
    {"log_interval", "train.log_every"},
    {"logging_steps", "train.log_every"},
    {"log_every_n_steps", "train.log_every"},
    {"eval_interval", "train.eval_every"},
    {"check_val_every_n_epoch", "train.eval_every"},
    {"early_stopping", "train.early_stop"},
    {"early_stopping_patience", "train.early_stop"},
    {"save_steps", "checkpoint.every_steps"},
    {"save_interval", "checkpoint.every_epochs"},
    {"save_every", "checkpoint.every_epochs"},
    {"save_total_limit", "checkpoint.keep"},
    {"save_top_k", "checkpoint.keep"},
    {"save_best", "checkpoint.best"},
};

constexpr OtherName kOfSections[] = {
    {"optimizer", "optim"},        {"optimiser", "optim"},
    {"optimization", "optim"},     {"trainer", "train"},
    {"training", "train"},         {"dataset", "data"},
    {"dataloader", "data"},        {"loader", "data"},
    {"scheduler", "schedule"},     {"lr_scheduler", "schedule"},
    {"lr_schedule", "schedule"},   {"network", "model"},
    {"checkpoints", "checkpoint"}, {"checkpointing", "checkpoint"},
    {"distributed", "launch"},     {"dist", "launch"},
    {"experiment", "run"},         {"logging", "run"},
};

std::string with_underscores(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(c == '-' ? '_' : std::tolower(c)); });
  return name;
}

std::string ours_in(std::span<const OtherName> table, const std::string& name) {
  const auto found =
      std::find_if(table.begin(), table.end(),
                   [wanted = with_underscores(name)](const auto& row) { return row.name == wanted; });
  return found == table.end() ? "" : found->ours;
}

}  // namespace

std::span<const OtherName> other_names_of_keys() {
  return kOfKeys;
}

std::string key_by_other_name(const std::string& name) {
  return ours_in(kOfKeys, name);
}

std::string section_by_other_name(const std::string& name) {
  return ours_in(kOfSections, name);
}

}  // namespace lockstep::config
