#include "trainer/config/keys.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/identify.h"

namespace lockstep::config {
namespace {

// the key's path and its field in one, so that they cannot differ
#define KEY(path) #path, [](Settings & settings) -> SettingsField { return &settings.path; }

const Use kTask{"task.name"};  // whether the chosen row reads the key, the row says
const Use kModel{"model.name"};
const Use kHook{"ddp.comm_hook"};
const Use kOptimizer{"optim.name"};
const Use kSchedule{"schedule.name"};
const Use kDdp{"train.mode", {"ddp"}};
const Use kDataParallel{"train.mode", {"data_parallel"}};

constexpr double kMaxCount = 2147483647;  // products of two counts fit in an int64
constexpr double kMaxRanks = 65536;
constexpr double kMaxSeed = 9007199254740992;  // 2^53: seed + epoch never overflows

const std::vector<Key> kKeys = {
    {KEY(run.name), "the run's name and the name of its folder", {.path = true}},
    {KEY(run.dir),
     "the folder with the run folders",
     {.path = true, .about = About::place, .own_path = true}},
    {KEY(run.seed), "seed of the initial weights, the sample order and dropout", {.min = 0, .max = kMaxSeed}},

    {KEY(launch.launcher),
     "what started the ranks; auto = detect it, none = one process",
     {.choices = launch::launcher_choices(), .about = About::place}},
    {KEY(launch.backend),
     "auto: nccl on GPUs, shared (shared memory) on CPUs, gloo if each of several nodes has one rank; with "
     "one process, mpi is the same as auto",
     {.choices = {"auto", "nccl", "shared", "gloo", "mpi"}, .about = About::place}},
    {KEY(launch.allreduce),
     "all-reduce algorithm for gradients; auto = the backend's own, the others send messages",
     {.choices = {"auto", "reduce_broadcast", "all_to_all", "ring", "recursive_doubling", "halving_doubling",
                  "tree", "two_level"},
      .about = About::place}},
    {KEY(launch.device),
     "auto = a GPU if there is one, unless launch.backend or launch.allreduce sums on CPUs",
     {.choices = {"auto", "cpu", "cuda"}, .about = About::place}},
    {KEY(launch.latency_us),
     "simulated slow network: microseconds added to each message",
     {.min = 0, .max = 1e9, .about = About::place}},
    {KEY(launch.bandwidth_gbit),
     "simulated slow network: Gbit/s of each rank's link; 0 = unlimited",
     {.min = 0, .max = 1e6, .about = About::place}},
    {KEY(launch.join_timeout),
     "how long to wait for all ranks to join",
     {.min = 0, .above_min = true, .about = About::place}},
    {KEY(launch.timeout), "time limit of a collective", {.min = 0, .above_min = true, .about = About::place}},

    {KEY(task.name), "what to train", {.table = "task", .path = true}},
    {KEY(task.kind),
     "what the label is: a class, or a number to predict",
     {.choices = {"classification", "regression"}, .use = kTask}},
    {KEY(task.images),
     "IDX files of images: the training set's, then the evaluation set's",
     {.path = true, .use = kTask}},
    {KEY(task.labels),
     "IDX files of labels: the training set's, then the evaluation set's",
     {.path = true, .use = kTask}},
    {KEY(task.file), "the file of samples", {.path = true, .use = kTask}},
    {KEY(task.eval_file), "evaluation samples; empty = split off from `file`", {.path = true, .use = kTask}},
    {KEY(task.delimiter),
     "the column separator; task csv finds `;` and tabs in the file if this is a comma",
     {.use = kTask}},
    {KEY(task.label),
     "the label's column, by name or index, -1 = the last; empty = the one named label, target or class, "
     "else the last",
     {.use = kTask, .once = {"", "-1"}}},
    {KEY(task.text), "the text column, or the two columns of a pair, by name or index", {.use = kTask}},
    {KEY(task.vocabulary),
     "the folder with the tokenizer's vocab.txt; empty = model.path",
     {.path = true, .use = kTask, .own_path = true}},
    {KEY(task.cache),
     "the folder that keeps tokens between runs; empty = data.stage, or next to the file of samples",
     {.path = true, .use = kTask, .about = About::place, .own_path = true}},
    {KEY(task.max_length),
     "maximum tokens of a sample; longer ones are truncated",
     {.min = 3, .max = kMaxCount, .use = kTask}},
    {KEY(task.size), "rows and columns that each image is scaled to", {.min = 1, .max = 65536, .use = kTask}},
    {KEY(task.augment),
     "random changes of a training image, new each epoch: crop, flip",
     {.choices = {"crop", "flip"}, .use = kTask}},
    {KEY(task.damaged),
     "an image that cannot be read: refuse = end the run, skip = omit it with a warning",
     {.choices = {"refuse", "skip"}, .use = kTask}},
    {KEY(task.features), "the feature columns, by name or index; empty = all others", {.use = kTask}},
    {KEY(task.ignore), "columns that are not features, by name or index", {.use = kTask}},
    {KEY(task.categories),
     "feature columns that become one column of 0 and 1 per value (one-hot), by name or index",
     {.use = kTask}},
    {KEY(task.missing),
     "cells without a value: refuse = an error, drop = omit the row, mean = use the mean of the training "
     "rows",
     {.choices = {"refuse", "drop", "mean"}, .use = kTask}},
    {KEY(task.header), "the first line names the columns", {.use = kTask}},
    {KEY(task.eval_fraction),
     "the share of samples to evaluate on if there is no evaluation file",
     {.min = 0, .max = 1, .below_max = true, .use = kTask}},
    {KEY(task.classes), "classes; 0 = counted from the labels", {.min = 0, .max = kMaxCount, .use = kTask}},
    {KEY(task.normalize),
     "standard = mean 0 and standard deviation 1 on the training set; mean_std = use `mean` and `std`",
     {.choices = {"standard", "none", "mean_std"}, .use = kTask}},
    {KEY(task.mean), "with normalize: mean_std, one number per channel or feature", {.use = kTask}},
    {KEY(task.std),
     "with normalize: mean_std, one number per channel or feature",
     {.min = 0, .above_min = true, .use = kTask}},
    {KEY(task.normalize_label),
     "for regression: standard = scaled to mean 0 and standard deviation 1; auto = standard, or none if "
     "normalize is none",
     {.choices = {"auto", "standard", "none"}, .use = kTask, .once = {"auto", "none"}}},
    {KEY(task.class_weights), "balanced = more weight for rare classes", {.choices = {"none", "balanced"}}},
    {KEY(task.options), "options of cartpole or your own task, passed unchanged as strings", {.use = kTask}},

    {KEY(data.root),
     "the data set's folder or archive; empty = the task's own",
     {.path = true, .own_path = true}},
    {KEY(data.batch_size), "samples in each rank's batch", {.min = 1, .max = kMaxCount}},
    {KEY(data.shuffle), "a new order of samples each epoch"},
    {KEY(data.drop_last),
     "the sampler drops samples that do not divide evenly among the ranks, instead of repeating some"},
    {KEY(data.drop_last_batch), "the loader drops a last batch that is not full"},
    {KEY(data.workers), "threads that prepare batches; 0 = the training thread", {.min = 0, .max = 1024}},
    {KEY(data.pin_memory), "page-locked batches for faster copies to a GPU"},
    {KEY(data.resident), "keep the training set in device memory; same results", {.about = About::place}},
    {KEY(data.bucket),
     "sort this many samples at a time by length, for less padding; 0 = off",
     {.min = 0, .max = kMaxCount}},
    {KEY(data.stage),
     "a node-local folder to copy the data set to, once per node; empty = no copy",
     {.path = true, .about = About::place, .own_path = true}},

    {KEY(model.name), "the model; empty = the task's own", {.table = "model", .path = true}},
    {KEY(model.path),
     "a file of torch.export.save or torch.jit.save, a file of weights, or the folder of a pretrained model",
     {.path = true, .use = kModel}},
    {KEY(model.eval_path),
     "the same model, exported after model.eval(); empty = model.path in evaluation mode",
     {.path = true, .use = kModel}},
    {KEY(model.hidden),
     "widths of the hidden layers of an mlp; empty = the task's own",
     {.min = 1, .max = kMaxCount, .use = kModel}},
    {KEY(model.devices),
     "the devices of one rank, one per stage; on a CPU, use 0 and 1",
     {.min = 0, .max = 1024, .use = kModel}},
    {KEY(model.checkpointing),
     "recompute activations in backward: less memory, more time, the same results",
     {.use = kModel, .about = About::place}},
    {KEY(model.options), "options of bert, bert_layer or your own model", {.use = kModel}},

    {KEY(ddp.find_unused_parameters), "parameters may get no gradient in some steps; slower", {.use = kDdp}},
    {KEY(ddp.static_graph), "the same parameters get gradients in every step", {.use = kDdp}},
    {KEY(ddp.bucket_cap_mb),
     "MiB of gradients per all-reduce; 0 = one parameter each (error in Python); default = 1 first, then 25",
     {.min = 0, .word = "default", .use = kDdp}},
    {KEY(ddp.gradient_as_bucket_view), "gradients are views of buckets, which saves a copy", {.use = kDdp}},
    {KEY(ddp.broadcast_buffers), "broadcast rank 0's buffers (running means) before forward", {.use = kDdp}},
    {KEY(ddp.sync_batchnorm), "BatchNorm uses the batches of all ranks", {.use = kDdp}},
    {KEY(ddp.comm_hook),
     "how gradients are sent; fp16, bf16 and powersgd send less, but results change",
     {.table = "comm hook", .path = true, .use = kDdp}},
    {KEY(ddp.options), "options of powersgd or your own hook", {.use = kHook}},

    {KEY(parallel.data),
     "copies of the model, each with its own samples; 0 = world size / (tensor x pipeline)",
     {.min = 0, .max = 1e6, .use = kDdp, .about = About::place}},
    {KEY(parallel.tensor),
     "ranks that share each layer",
     {.min = 1, .max = 1e6, .use = kDdp, .about = About::place}},
    {KEY(parallel.pipeline),
     "ranks that each hold a stage of the layers",
     {.min = 1, .max = 1e6, .use = kDdp, .about = About::place}},
    {KEY(parallel.micro_batches),
     "parts of a batch that pass through the pipeline one after another",
     {.min = 1, .max = 1e6, .use = kDdp, .about = About::place}},
    {KEY(parallel.sequence),
     "sequence parallelism: between tensor-parallel layers, each rank has a part of the tokens",
     {.use = kDdp, .about = About::place}},

    {KEY(data_parallel.devices),
     "devices of the one process; 0 = every GPU, or two threads on a CPU",
     {.min = 0, .max = 1024, .use = kDataParallel}},
    {KEY(data_parallel.loss_in_forward),
     "each device computes its own loss, so the first device does not gather the outputs",
     {.use = kDataParallel}},

    {KEY(optim.name), "the optimizer", {.table = "optimizer", .path = true}},
    {KEY(optim.lr), "the learning rate, before the schedule", {.min = 0}},
    {KEY(optim.momentum), "momentum", {.min = 0, .use = kOptimizer}},
    {KEY(optim.weight_decay),
     "weight decay; default = the optimizer's default, as in Python",
     {.min = 0, .word = "default", .use = kOptimizer}},
    {KEY(optim.nesterov), "Nesterov momentum", {.use = kOptimizer}},
    {KEY(optim.betas),
     "decay rates of the two running means",
     {.min = 0, .max = 1, .below_max = true, .use = kOptimizer}},
    {KEY(optim.eps), "added to the denominator", {.min = 0, .use = kOptimizer}},
    {KEY(optim.sharded),
     "each rank keeps its share of the optimizer's state (ZeRO-1); results do not change",
     {.use = kDdp, .about = About::place}},
    {KEY(optim.no_decay),
     "parameters whose names contain one of these (bias, LayerNorm) get no weight decay",
     {.use = kOptimizer}},
    {KEY(optim.options), "options of your own optimizer", {.use = kOptimizer}},

    {KEY(schedule.name), "the learning-rate schedule", {.table = "schedule", .path = true}},
    {KEY(schedule.step_size), "epochs between two reductions of the rate", {.min = 1, .use = kSchedule}},
    {KEY(schedule.gamma), "the factor of each reduction", {.min = 0, .use = kSchedule}},
    {KEY(schedule.T_max), "epochs until eta_min; 0 = the run's epochs", {.min = 0, .use = kSchedule}},
    {KEY(schedule.eta_min), "the lowest rate", {.min = 0, .use = kSchedule}},
    {KEY(schedule.max_lr), "the highest rate", {.min = 0, .use = kSchedule}},
    {KEY(schedule.total_steps), "steps of the cycle; 0 = the run's steps", {.min = 0, .use = kSchedule}},
    {KEY(schedule.pct_start), "share of the cycle with rising rate", {.min = 0, .max = 1, .use = kSchedule}},
    {KEY(schedule.anneal_strategy), "the curve's shape", {.choices = {"cos", "linear"}, .use = kSchedule}},
    {KEY(schedule.cycle_momentum), "momentum falls while the rate rises, and vice versa", {.use = kSchedule}},
    {KEY(schedule.base_momentum), "the lowest momentum", {.min = 0, .max = 1, .use = kSchedule}},
    {KEY(schedule.max_momentum), "the highest momentum", {.min = 0, .max = 1, .use = kSchedule}},
    {KEY(schedule.div_factor), "max_lr / the first rate", {.min = 0, .above_min = true, .use = kSchedule}},
    {KEY(schedule.final_div_factor),
     "the first rate divided by the last",
     {.min = 0, .above_min = true, .use = kSchedule}},
    {KEY(schedule.three_phase),
     "the rate falls for as many steps as it rose, then falls further",
     {.use = kSchedule}},
    {KEY(schedule.start_factor),
     "the first rate as a share of optim.lr",
     {.min = 0, .max = 1, .above_min = true, .use = kSchedule}},
    {KEY(schedule.end_factor), "the last rate divided by optim.lr", {.min = 0, .max = 1, .use = kSchedule}},
    {KEY(schedule.total_iters), "epochs from the first to the last rate", {.min = 1, .use = kSchedule}},
    {KEY(schedule.warmup_steps), "steps until the full rate", {.min = 0, .use = kSchedule}},
    {KEY(schedule.mode),
     "whether a smaller (min) or a larger (max) metric is better",
     {.choices = {"min", "max"}, .use = kSchedule}},
    {KEY(schedule.factor),
     "the factor if the metric does not improve",
     {.min = 0, .max = 1, .below_max = true, .use = kSchedule}},
    {KEY(schedule.patience), "epochs without improvement before a reduction", {.min = 0, .use = kSchedule}},
    {KEY(schedule.threshold), "smallest change that counts as an improvement", {.min = 0, .use = kSchedule}},
    {KEY(schedule.threshold_mode),
     "threshold relative to the best metric (rel) or absolute (abs)",
     {.choices = {"rel", "abs"}, .use = kSchedule}},
    {KEY(schedule.cooldown), "epochs to wait after a reduction", {.min = 0, .use = kSchedule}},
    {KEY(schedule.min_lr), "the lowest rate", {.min = 0, .use = kSchedule}},
    {KEY(schedule.eps), "ignore smaller changes of the rate", {.min = 0, .use = kSchedule}},
    {KEY(schedule.options), "options of your own schedule", {.use = kSchedule}},

    {KEY(train.mode),
     "ddp = all ranks; single = one process, no group; data_parallel = one process, several devices",
     {.choices = words_of<TrainMode>()}},
    {KEY(train.as_world),
     "train as this many ranks on any number of processes, with the same results; 0 = one rank per process",
     {.min = 0, .max = kMaxRanks}},
    {KEY(train.threads),
     "threads per rank; 0 = its share of the cores, or 1 with train.as_world",
     {.min = 0, .max = 4096}},
    {KEY(train.exact),
     "required = refuse to resume if results would differ: new world size, machine, libtorch or config",
     {.choices = words_of<SameBits>(), .about = About::place}},
    {KEY(train.epochs), "passes over the training set", {.min = 1, .max = kMaxCount, .about = About::length}},
    {KEY(train.max_steps),
     "maximum number of optimizer steps; 0 = no limit",
     {.min = 0, .about = About::length}},
    {KEY(train.max_seconds),
     "stop with a checkpoint after this many seconds; 0 = no limit",
     {.min = 0, .about = About::length}},
    {KEY(train.precision), "bf16 and fp16 match Python's autocast", {.choices = words_of<Precision>()}},
    {KEY(train.layout),
     "channels_last is often faster for images, with the results of Python's channels_last; auto = measure "
     "both and use the faster one",
     {.choices = words_of<ImageLayout>(), .once = {"auto", "nchw"}}},
    {KEY(train.kernels),
     "exact = libtorch's results, bit for bit; fast = on CPUs, lockstep's own kernels, which sum in a "
     "different order",
     {.choices = words_of<KernelChoice>()}},
    {KEY(train.graph), "each step is one CUDA graph, with a fused optimizer; needs data.resident and a GPU"},
    {KEY(train.tf32),
     "fp32 operations that a GPU computes in TF32; convolutions is Python's default",
     {.choices = words_of<Tf32>()}},
    {KEY(train.cudnn_benchmark), "cuDNN tries its algorithms for each new shape and picks the fastest"},
    {KEY(train.deterministic),
     "the same results in each run on a GPU, or an error; like torch.use_deterministic_algorithms"},
    {KEY(train.accumulate), "batches in one optimizer step", {.min = 1, .max = 1e6}},
    {KEY(train.clip_norm), "the largest norm of the gradients; 0 = no clipping", {.min = 0}},
    {KEY(train.label_smoothing), "label smoothing of the cross-entropy loss", {.min = 0, .max = 1}},
    {KEY(train.log_every), "steps between two log lines; 0 = none", {.min = 0}},
    {KEY(train.eval_every), "epochs between two evaluations; 0 = none", {.min = 0}},
    {KEY(train.early_stop), "epochs without a better evaluation before the run ends; 0 = never", {.min = 0}},
    {KEY(train.trace),
     "number of most recent steps that trace.json keeps, for all ranks; 0 = no trace",
     {.min = 0, .max = 1e6, .about = About::place}},
    {KEY(train.nvtx),
     "show steps, phases and all-reduces as named ranges in Nsight Systems; needs a GPU",
     {.about = About::place}},
    {KEY(train.provoke),
     "a fault to inject for practice",
     {.choices = {"none", "skipped_collective", "different_shape", "different_order", "unused_parameter",
                  "unsynced_batchnorm", "local_loss", "nccl_in_container"}}},

    {KEY(checkpoint.every_epochs),
     "epochs between checkpoints (after 1,000 at least 10, ...); 0 = at the end",
     {.min = 0}},
    {KEY(checkpoint.every_steps), "steps between two checkpoints; 0 = only by epochs", {.min = 0}},
    {KEY(checkpoint.every_minutes), "minutes between checkpoints; 0 = only by epochs and steps", {.min = 0}},
    {KEY(checkpoint.keep), "how many of the newest checkpoints to keep; 0 = all", {.min = 0}},
    {KEY(checkpoint.best), "also keep the checkpoint with the best evaluation as checkpoints/best.pt"},
    {KEY(checkpoint.before_deadline), "how long before the job's end to stop with a checkpoint", {.min = 0}},
};

#undef KEY

std::string range_text(const Rules& rules) {
  const bool low = std::isfinite(rules.min), high = std::isfinite(rules.max);
  if (low && high && !rules.above_min && !rules.below_max)
    return format(" from {} to {}", rules.min, rules.max);
  std::string text = low ? format("{} {}", rules.above_min ? " above" : ", at least", rules.min) : "";
  if (high) text += format("{} {} {}", low ? " and" : "", rules.below_max ? "below" : "at most", rules.max);
  return text;
}

struct Expectation {
  const Rules& rules;

  std::string operator()(bool*) const { return "true or false"; }
  std::string operator()(int64_t*) const { return "an integer" + range_text(rules); }
  std::string operator()(double*) const { return "a number" + range_text(rules); }
  std::string operator()(std::optional<double>*) const { return "a number" + range_text(rules); }
  std::string operator()(std::string*) const {
    return rules.choices.empty() ? "a string" : "one of " + base::join(rules.choices, ", ");
  }
  template <OneOfWords Choice>
  std::string operator()(Choice*) const {
    return "one of " + base::join(rules.choices, ", ");
  }
  std::string operator()(std::chrono::milliseconds*) const { return "a duration such as 60s, 10m or 1h30m"; }
  std::string operator()(std::array<double, 2>*) const { return "a list of two numbers" + range_text(rules); }
  std::string operator()(std::vector<int64_t>*) const { return "a list of integers" + range_text(rules); }
  std::string operator()(std::vector<double>*) const { return "a list of numbers" + range_text(rules); }
  std::string operator()(std::vector<std::string>*) const { return "a list of strings"; }
  std::string operator()(std::map<std::string, std::string>*) const { return "a map of strings"; }
};

// The names from other frameworks that people write most often.
constexpr std::pair<const char*, const char*> kForeignNames[] = {
    {"learning_rate", "optim.lr"},     {"optimizer", "optim.name"},
    {"lr_scheduler", "schedule.name"}, {"batch", "data.batch_size"},
    {"num_epochs", "train.epochs"},    {"max_epochs", "train.epochs"},
    {"num_workers", "data.workers"},   {"gradient_accumulation_steps", "train.accumulate"},
    {"fp16", "train.precision"},       {"max_grad_norm", "train.clip_norm"}};

}  // namespace

const std::vector<Key>& keys() {
  return kKeys;
}

const Key* find_key(const std::string& path) {
  const auto found =
      std::find_if(kKeys.begin(), kKeys.end(), [&](const Key& key) { return key.path == path; });
  return found == kKeys.end() ? nullptr : &*found;
}

const std::vector<std::string>& sections() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Key& key : kKeys)
      if (out.empty() || out.back() != key.section()) out.push_back(key.section());
    return out;
  }();
  return names;
}

SettingsField field_of(const Key& key, const Settings& settings) {
  return key.field(const_cast<Settings&>(settings));
}

std::string text_of(const Key& key, const Settings& settings) {
  const auto text = [](const auto* field) -> std::string {
    using Value = std::decay_t<decltype(*field)>;
    if constexpr (std::is_same_v<Value, std::string>) return *field;
    if constexpr (OneOfWords<Value>) return word_of(*field);
    return {};
  };
  return std::visit(text, field_of(key, settings));
}

std::vector<std::string> row_names(const Key& key) {
  auto names = base::names_of(key.rules.table);
  const auto first = std::find(names.begin(), names.end(), text_of(key, Settings{}));
  if (first != names.end()) std::rotate(names.begin(), first, first + 1);
  return names;
}

std::string expected(const Key& key) {
  Settings settings;
  return expected(key, key.field(settings));
}

std::string expected(const Key& key, SettingsField field) {
  if (!key.rules.table.empty())
    return "the path of a library (.so), or one of " + base::join(row_names(key), ", ");
  const std::string text = std::visit(Expectation{key.rules}, field);
  return key.rules.word.empty() ? text : format("{}, or {}", text, key.rules.word);
}

std::string nearest_path(const std::string& word) {
  std::map<std::string, std::string>
      meanings;  // the sections, the paths, and the names in their first section
  for (const auto& section : sections()) meanings[section] = section;
  for (const Key& key : keys()) meanings[key.path] = key.path;
  for (const auto& [foreign, path] : kForeignNames) meanings[foreign] = path;
  for (const Key& key : keys()) meanings.emplace(key.name(), key.path);
  auto path = word;
  std::replace(path.begin(), path.end(), '-', '_');
  const auto name = path.substr(path.find('.') + 1);  // the whole word where there is no dot
  for (const auto& exact : {path, name})
    if (const auto found = meanings.find(exact); found != meanings.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [each, path_of_it] : meanings) known.push_back(each);
  for (const auto& spelled : {path, name})
    if (const auto near = base::nearest(spelled, known)) return meanings.at(*near);
  return "";
}

std::string did_you_mean(const std::string& path) {
  return base::did_you_mean(nearest_path(path));
}

namespace {

bool contains(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

std::string text_at(const Settings& settings, const std::string& selector) {
  return text_of(*find_key(selector), settings);
}

const TableRow* row_at(const std::string& selector, const std::string& name) {
  const auto& kind = find_key(selector)->rules.table;
  return kind.empty() || name.empty() ? nullptr : base::find_row(kind, name);
}

bool reads(const TableRow& row, const std::string& name) {
  return contains(row.facts.reads, "*") || lists(row, name);
}

}  // namespace

const std::vector<const Key*>& selectors() {
  static const auto all = [] {
    std::vector<const Key*> out;
    for (const Key& key : keys())
      if (!key.rules.table.empty()) out.push_back(&key);
    return out;
  }();
  return all;
}

const std::string* chosen_default(const Settings& settings, const std::string& path) {
  for (const Key* key : selectors()) {
    const auto* row = row_at(key->path, text_at(settings, key->path));
    if (!row) continue;
    const auto found = row->facts.defaults.find(path);
    if (found != row->facts.defaults.end()) return &found->second;
  }
  return nullptr;
}

std::string chosen_name(const Settings& settings, const std::string& selector) {
  auto text = text_at(settings, selector);
  if (!text.empty()) return text;
  const auto* meant = chosen_default(settings, selector);
  return meant ? *meant : "";
}

const TableRow* chosen_row(const Settings& settings, const std::string& selector) {
  return row_at(selector, chosen_name(settings, selector));
}

std::vector<const TableRow*> chosen_rows(const Settings& settings) {
  std::vector<const TableRow*> rows;
  for (const Key* key : selectors())
    if (const auto* row = chosen_row(settings, key->path)) rows.push_back(row);
  return rows;
}

bool lists(const TableRow& row, const std::string& name) {
  const auto is_or_holds = [&](const std::string& read) {
    return read == name || read.starts_with(name + ".");
  };
  return std::any_of(row.facts.reads.begin(), row.facts.reads.end(), is_or_holds);
}

bool may_be_used(const Key& key, const Settings& settings) {
  const Use& use = key.rules.use;
  if (use.selector.empty()) return true;
  if (!use.values.empty()) return contains(use.values, text_at(settings, use.selector));
  const auto* row = chosen_row(settings, use.selector);
  return !row || reads(*row, key.name());
}

bool is_read(const std::string& path, const Settings& settings) {
  const Key& key = *find_key(path);
  if (key.rules.use.selector.empty()) return true;
  const auto* row = chosen_row(settings, key.rules.use.selector);
  return row && lists(*row, key.name());
}

std::vector<std::string> unread_options(const Key& key, const Settings& settings) {
  using Map = std::map<std::string, std::string>;
  const auto* row = key.rules.use.selector.empty() ? nullptr : chosen_row(settings, key.rules.use.selector);
  if (!row || !std::holds_alternative<Map*>(field_of(key, settings)) || !reads(*row, key.name())) return {};
  if (contains(row->facts.reads, "*") || contains(row->facts.reads, key.name())) return {};
  std::vector<std::string> unread;
  for (const auto& [name, value] : *std::get<Map*>(field_of(key, settings)))
    if (!contains(row->facts.reads, key.name() + "." + name)) unread.push_back(key.path + "." + name);
  return unread;
}

std::vector<std::string> unknown_options(const Key& key, const Settings& settings) {
  using Map = std::map<std::string, std::string>;
  const auto* row = key.rules.use.selector.empty() ? nullptr : chosen_row(settings, key.rules.use.selector);
  if (!row || !row->library.empty() || !std::holds_alternative<Map*>(field_of(key, settings))) return {};
  if (contains(row->facts.reads, "*") || contains(row->facts.reads, key.name())) return {};
  const auto rows = base::rows_of(find_key(key.rules.use.selector)->rules.table);
  std::vector<std::string> unknown;
  for (const auto& [name, value] : *std::get<Map*>(field_of(key, settings))) {
    const auto knows = [path = key.name() + "." + name](const auto* one) { return lists(*one, path); };
    if (std::none_of(rows.begin(), rows.end(), knows)) unknown.push_back(name);
  }
  return unknown;
}

std::vector<std::string> readers(const Key& key) {
  const Use& use = key.rules.use;
  if (use.selector.empty() || !use.values.empty()) return use.values;
  std::vector<std::string> names;
  const auto rows = base::rows_of(find_key(use.selector)->rules.table);
  for (const auto* row : rows)
    if (reads(*row, key.name())) names.push_back(row->name);
  return names.size() == rows.size() ? std::vector<std::string>{} : names;
}

}  // namespace lockstep::config
