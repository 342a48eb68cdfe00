#pragma once
// What a task is made from. It names no key of the trainer's, so that a new one breaks no task's library.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/options/data_settings.h"
#include "lockstep/options/model_settings.h"

namespace lockstep {

/// The section `task` of a config: the built-in tasks for the user's own files are told of them here; see
/// docs/config.md.
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

  /// Its labels are numbers, not classes.
  bool is_regression() const { return kind == "regression"; }
  /// The loss counts a class the more, the fewer samples it has.
  bool weighs_classes() const { return class_weights != "none"; }
  bool operator==(const TaskSettings&) const = default;
};

/// What of a config a task may read, by reference: good for the length of a call.
struct TaskConfig {
  const TaskSettings& task;
  const DataSettings& data;
  const ModelSettings& model;
  int64_t seed;    // run.seed
  bool evaluates;  // there are evaluations while it trains
};

/// What a task's library was compiled with: other bytes, and it would read the wrong ones.
constexpr size_t kTaskSettingsBytes =
    sizeof(TaskSettings) + sizeof(DataSettings) + sizeof(ModelSettings) + sizeof(TaskConfig);

}  // namespace lockstep
