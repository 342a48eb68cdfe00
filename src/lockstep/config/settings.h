#pragma once
// The typed settings of a run: what a config file says, resolved. One struct a section. A new field here
// needs a row in the table of keys (keys.cpp): a test compares the two.

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/options.h"

namespace lockstep {

/// The section `run`.
struct RunSettings {
  std::string name = "run";
  std::string dir = "runs";
  int64_t seed = 0;

  bool operator==(const RunSettings&) const = default;
};

/// The section `data`.
struct DataSettings {
  std::string root;
  int64_t batch_size = 128;
  bool shuffle = true;
  bool drop_last = false;        // the sampler's
  bool drop_last_batch = false;  // the loader's
  int64_t workers = 2;
  bool pin_memory = true;
  bool resident = false;  // the training set lies on the rank's device
  int64_t bucket = 0;     // samples that are put in the order of their lengths; 0 = as they come
  std::string stage;

  bool operator==(const DataSettings&) const = default;
};

/// The section `ddp`; DdpOptions says what each does.
struct DdpSettings {
  bool find_unused_parameters = false;
  bool static_graph = false;
  std::optional<double> bucket_cap_mb;  // nullopt = Python's unset: 1 MiB first, then 25
  bool gradient_as_bucket_view = false;
  bool broadcast_buffers = true;
  bool sync_batchnorm = false;
  std::string comm_hook = "none";                   // a row of the table of comm hooks
  std::map<std::string, std::string> options = {};  // for a hook of the user's own

  bool operator==(const DdpSettings&) const = default;
};

/// The section `parallel`: the ranks as a grid.
struct ParallelSettings {
  int64_t data = 0;           // 0 = what the others leave of the world
  int64_t tensor = 1;         // ranks that share each layer
  int64_t pipeline = 1;       // ranks that each hold some of the layers
  int64_t micro_batches = 4;  // of a pipeline's batch
  bool sequence = false;      // norms between tensor-parallel layers share the tokens, too

  bool operator==(const ParallelSettings&) const = default;
};

/// The section `data_parallel`, for train.mode: data_parallel.
struct DataParallelSettings {
  int64_t devices = 0;           // 0 = every GPU of this process; on a CPU, two
  bool loss_in_forward = false;  // each device computes its own loss: outputs are not gathered

  bool operator==(const DataParallelSettings&) const = default;
};

/// The section `optim`.
struct OptimSettings {
  std::string name = "sgd";  // a row of the table of optimisers
  double lr = 0.01;
  double momentum = 0.9;
  double weight_decay = 0;  // resolved from `default`: the optimiser's row says what it is
  bool nesterov = false;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  bool sharded = false;                             // each rank keeps its share of the state
  std::vector<std::string> no_decay = {};           // parts of names: no weight decay for these parameters
  std::map<std::string, std::string> options = {};  // for an optimiser of the user's own

  bool operator==(const OptimSettings&) const = default;
};

/// Python's parameter names; each schedule reads its own.
struct ScheduleSettings {
  std::string name = "none";  // a row of the table of schedules
  int64_t step_size = 1;
  double gamma = 0.1;
  int64_t T_max = 0;  // 0 = the run's epochs
  double eta_min = 0;
  double max_lr = 0;
  int64_t total_steps = 0;  // 0 = the run's steps
  double pct_start = 0.3;
  std::string anneal_strategy = "cos";
  bool cycle_momentum = true;
  double base_momentum = 0.85;
  double max_momentum = 0.95;
  double div_factor = 25;
  double final_div_factor = 1e4;
  bool three_phase = false;
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  int64_t total_iters = 5;
  int64_t warmup_steps = 0;
  std::string mode = "min";
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  std::string threshold_mode = "rel";
  int64_t cooldown = 0;
  double min_lr = 0;
  double eps = 1e-8;
  std::map<std::string, std::string> options = {};  // for a schedule of the user's own

  bool operator==(const ScheduleSettings&) const = default;
};

/// The section `train`.
struct TrainSettings {
  std::string mode = "ddp";  // ddp | single | data_parallel
  int64_t epochs = 5;
  int64_t max_steps = 0;
  double max_seconds = 0;
  std::string precision = "fp32";  // fp32 | bf16 | fp16
  std::string layout = "nchw";     // nchw | channels_last
  std::string kernels = "exact";   // exact | fast
  bool graph = false;              // the step is captured, and replayed
  int64_t accumulate = 1;
  double clip_norm = 0;
  double label_smoothing = 0;
  int64_t log_every = 100;
  int64_t eval_every = 1;
  int64_t early_stop = 0;        // epochs without a better eval loss before the run ends; 0 = never
  int64_t trace = 0;             // the last steps that trace.json keeps; 0 = no trace
  std::string provoke = "none";  // a trouble made on purpose

  bool operator==(const TrainSettings&) const = default;
};

/// The section `checkpoint`.
struct CheckpointSettings {
  int64_t every_epochs = 1;
  int64_t every_steps = 0;
  double every_minutes = 0;
  int64_t keep = 3;
  bool best = true;
  std::chrono::milliseconds before_deadline{60'000};

  bool operator==(const CheckpointSettings&) const = default;
};

/// The built-in tasks for the user's own files are told of them here; see docs/config.md.
struct TaskSettings {
  std::string name = "mnist";
  std::string kind = "classification";           // classification | regression; csv
  std::vector<std::string> images, labels;       // idx: train and eval files
  std::string file, eval_file, delimiter = ",";  // csv, text
  std::string label;                             // csv, text: name or index, -1 = the last
  std::vector<std::string> text;                 // text: the columns of one text, or of two
  std::string vocabulary;                        // text: a folder with vocab.txt; empty = model.path
  std::string cache;                             // text: where tokens are kept; empty = beside the file
  int64_t max_length = 128;                      // text: tokens
  std::vector<int64_t> size;                     // folder: rows and columns of an image
  std::vector<std::string> augment;              // folder: crop, flip
  std::string damaged = "refuse";                // folder: refuse | skip
  std::vector<std::string> features;             // csv: empty = every other column
  std::vector<std::string> ignore;               // csv: columns that are no features
  std::string missing = "refuse";                // csv: refuse | drop | mean
  bool header = true;
  double eval_fraction = 0.2;
  int64_t classes = 0;                 // 0 = counted from the labels
  std::string normalize = "standard";  // standard | none | mean_std
  std::vector<double> mean, std;
  std::string normalize_label = "auto";        // csv, text: auto | standard | none; of a regression
  std::string class_weights = "none";          // none | balanced
  std::map<std::string, std::string> options;  // for a task of the user's own: whatever it reads

  bool operator==(const TaskSettings&) const = default;
};

/// The section `model`.
struct ModelSettings {
  std::string name = {};                            // a row of the table of models; empty = the task's own
  std::string path = {};                            // torchscript
  std::vector<int64_t> hidden = {};                 // mlp widths; empty = the task's own
  std::vector<int64_t> devices = {};                // of one rank, a stage each
  std::map<std::string, std::string> options = {};  // for a model of the user's own

  bool operator==(const ModelSettings&) const = default;
};

/// A whole config: its sections in the file's order.
struct Settings {
  RunSettings run;
  LaunchOptions launch;
  TaskSettings task;
  DataSettings data;
  ModelSettings model;
  DdpSettings ddp;
  ParallelSettings parallel;
  DataParallelSettings data_parallel;
  OptimSettings optim;
  ScheduleSettings schedule;
  TrainSettings train;
  CheckpointSettings checkpoint;

  bool operator==(const Settings&) const = default;
};

}  // namespace lockstep
