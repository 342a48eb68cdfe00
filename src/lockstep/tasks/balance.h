#pragma once
// What the tasks share: paths and delimiters from the config, class balance, label scale, stratified splits.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/options/settings.h"
#include "lockstep/tasks/metrics.h"
#include "lockstep/tasks/task.h"

namespace lockstep::tasks {

/// The files that a recipe looks for. Only the first rank of a node looks for any.
enum class Look { no, evaluation, all };

/// A file under data.root; empty for no file.
std::string data_path(const TaskConfig& settings, const std::string& file);

/// task.delimiter, or a comma.
char delimiter_of(const TaskConfig& settings);

/// "0", "1", ...
std::vector<std::string> numbered(int64_t classes);

/// For recall(): InputError that the checkpoint's task was not one on `samples`.
[[noreturn]] void refuse_memory(const char* samples);

/// "label: kind (column 4)", as task.label counts columns.
std::string label_text(const std::string& name, int64_t column);

/// Adds notes on the labels, "train: 614 samples; 0: 400 (65.1 %), 1: 214 (34.9 %)" or the range of the
/// numbers, and the class weights if the task weighs its classes. Class labels may be of any integer type.
void add_balance(TaskData& data, const at::Tensor& train, const at::Tensor& eval, const TaskSettings& task);

/// The mean and deviation of floats, in double; a deviation of 1 if all are equal.
LabelScale scale_of(const at::Tensor& numbers);
/// float, of the same shape.
at::Tensor scaled(const at::Tensor& numbers, const LabelScale& scale);
/// Whether task.normalize_label asks for a scale.
bool wants_scale(const TaskSettings& task);

struct StratifiedSplit {
  std::vector<int64_t> train, eval;  // sorted
};

/// Moves the same share of each class, rounded to the nearest, to evaluation; the seed chooses the samples.
/// `labels` are int64 below `classes`, or floats, which form one class.
StratifiedSplit stratified(const at::Tensor& labels, size_t classes, double eval_fraction, int64_t seed);

}  // namespace lockstep::tasks
