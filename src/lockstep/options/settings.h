#pragma once
// The sections of a config as structs: data, model, optim, schedule and task.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// The section `data` of a config.
struct DataSettings {
  std::string root;
  int64_t batch_size = 128;
  bool shuffle = true;
  bool drop_last = false;        // drop_last of the sampler
  bool drop_last_batch = false;  // drop_last of the loader
  int64_t workers = 2;
  bool pin_memory = true;
  bool resident = false;  // the training set is in the rank's device memory
  int64_t bucket = 0;     // samples to sort by length at a time; 0 = off
  std::string stage;

  bool operator==(const DataSettings&) const = default;
};

// What a model is made from.

/// The section `model` of a config.
struct ModelSettings {
  std::string name = {};                            // a row of the table of models; empty = the task's own
  std::string path = {};                            // exported, torchscript, and pretrained models
  std::string eval_path = {};                       // exported: the same model after eval()
  std::vector<int64_t> hidden = {};                 // mlp widths; empty = the task's own
  std::vector<int64_t> devices = {};                // the devices of one rank, one per stage
  bool checkpointing = false;                       // recompute activations in backward
  std::map<std::string, std::string> options = {};  // for a user-defined model

  bool operator==(const ModelSettings&) const = default;
};

// What an optimizer is made from.

/// The section `optim` of a config.
struct OptimSettings {
  std::string name = "sgd";  // a row of the table of optimizers
  double lr = 0.01;
  double momentum = 0.9;
  double weight_decay = 0;  // `default` becomes the value in the optimizer's row
  bool nesterov = false;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  bool sharded = false;                             // each rank stores only its part of the state
  std::vector<std::string> no_decay = {};           // no weight decay for names that contain one of these
  std::map<std::string, std::string> options = {};  // for a user-defined optimizer

  bool operator==(const OptimSettings&) const = default;
};

// What a schedule of the learning rate is made from.

/// The section `schedule` of a config, with Python's parameter names; each schedule reads its own.
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
  std::map<std::string, std::string> options = {};  // for a user-defined schedule

  bool operator==(const ScheduleSettings&) const = default;
};

// What a task is made from. It holds no keys of the trainer, so that a new key breaks no task library.

/// The section `task` of a config: settings of the built-in tasks; see docs/reference/config.md.
struct TaskSettings {
  std::string name = "mnist";
  std::string kind = "classification";           // classification | regression; csv
  std::vector<std::string> images, labels;       // idx: train and eval files
  std::string file, eval_file, delimiter = ",";  // csv, text
  std::string label;                             // csv, text: name or index, -1 = the last
  std::vector<std::string> text;                 // text: the columns of one text, or of two
  std::string vocabulary;                        // text: a folder with vocab.txt; empty = model.path
  std::string cache;                             // text: folder of the token cache; empty = beside the file
  int64_t max_length = 128;                      // text: maximum number of tokens
  std::vector<int64_t> size;                     // folder: image size, rows and columns
  std::vector<std::string> augment;              // folder: crop, flip
  std::string damaged = "refuse";                // folder: refuse | skip
  std::vector<std::string> features;             // csv: empty = every other column
  std::vector<std::string> ignore;               // csv: columns that are not features
  std::vector<std::string> categories;           // csv: features that become one column per value
  std::string missing = "refuse";                // csv: refuse | drop | mean
  bool header = true;
  double eval_fraction = 0.2;
  int64_t classes = 0;                 // 0 = counted from the labels
  std::string normalize = "standard";  // standard | none | mean_std
  std::vector<double> mean, std;
  std::string normalize_label = "auto";        // csv, text: auto | standard | none; for a regression
  std::string class_weights = "none";          // none | balanced
  std::map<std::string, std::string> options;  // for a user-defined task

  /// Whether the labels are numbers, not classes.
  bool is_regression() const { return kind == "regression"; }
  /// Whether the loss gives rare classes a higher weight.
  bool weighs_classes() const { return class_weights != "none"; }
  bool operator==(const TaskSettings&) const = default;
};

/// References to the parts of a config that a task may read. They are valid only during the call.
struct TaskConfig {
  const TaskSettings& task;
  const DataSettings& data;
  const ModelSettings& model;
  int64_t seed;    // run.seed
  bool evaluates;  // whether the run evaluates during training
};

/// The size of the settings that a plug-in was compiled with; lockstep rejects another size.
constexpr size_t kTaskSettingsBytes =
    sizeof(TaskSettings) + sizeof(DataSettings) + sizeof(ModelSettings) + sizeof(TaskConfig);

}  // namespace lockstep
