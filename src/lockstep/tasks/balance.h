#pragma once
// Used by several tasks: paths and delimiters from the config, class balance, label scale, stratified splits.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/options/settings.h"
#include "lockstep/tasks/metrics.h"
#include "lockstep/tasks/task.h"

namespace lockstep::tasks {

/// The files of a recipe. Only the first rank of a node searches for them.
enum class Look { no, evaluation, all };

/// A file under data.root; empty for no file.
std::string data_path(const TaskConfig& settings, const std::string& file);

/// task.delimiter, or a comma.
char delimiter_of(const TaskConfig& settings);

/// "0", "1", ...
std::vector<std::string> numbered(int64_t classes);

/// For recall(): throws an InputError that the checkpoint's task does not have `samples`.
[[noreturn]] void refuse_memory(const char* samples);

/// "label: kind (column 4)", as task.label counts columns.
std::string label_text(const std::string& name, int64_t column);

/// Adds notes on the labels: "train: 614 samples; 0: 400 (65.1 %), 1: 214 (34.9 %)", or the range of the
/// numbers. Adds the class weights if the config asks for them. Class labels may have any integer type.
void add_balance(TaskData& data, const at::Tensor& train, const at::Tensor& eval, const TaskSettings& task);

/// The mean and standard deviation, computed in double; a deviation of 1 if all numbers are equal.
LabelScale scale_of(const at::Tensor& numbers);
/// The scaled numbers as float, in the same shape.
at::Tensor scaled(const at::Tensor& numbers, const LabelScale& scale);
/// Whether task.normalize_label asks for a scale.
bool wants_scale(const TaskSettings& task);

struct StratifiedSplit {
  std::vector<int64_t> train, eval;  // sorted
};

/// Selects the same share of each class, rounded to the nearest, for evaluation, at random from the seed.
/// `labels` are int64 below `classes`, or floats, which form one class.
StratifiedSplit stratified(const at::Tensor& labels, size_t classes, double eval_fraction, int64_t seed);

}  // namespace lockstep::tasks
