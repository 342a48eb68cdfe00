#include "lockstep/tasks/balance.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"

namespace lockstep::tasks {
namespace {

std::string balance_text(const std::string& set, const at::Tensor& counts,
                         const std::vector<std::string>& names) {
  constexpr size_t kMost = 12;
  const auto all = counts.sum().item<int64_t>();
  std::string text = format("{}: {}", set, base::counted(all, "sample"));
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    const auto count = counts[static_cast<int64_t>(i)].item<int64_t>();
    text += format("{} class {}: {} ({:.1f} %)", i == 0 ? ";" : ",", base::printable(names[i]), count,
                   all ? 100.0 * count / all : 0);
  }
  return names.size() > kMost ? text + ", ..." : text;
}

std::string range_text(const std::string& set, const at::Tensor& numbers) {
  if (numbers.numel() == 0) return format("{}: 0 samples", set);
  return format("{}: {}, {:g} to {:g}, mean {:g}", set, base::counted(numbers.numel(), "sample"),
                numbers.min().item<float>(), numbers.max().item<float>(),
                numbers.mean(at::kDouble).item<double>());
}

// samples / (classes * the class's own), scikit-learn's "balanced"; 0 for a class without samples
at::Tensor balanced_weights(const at::Tensor& counts) {
  const auto wide = counts.to(at::kDouble);
  const auto weights = wide.sum() / (wide * counts.numel());
  return at::where(counts > 0, weights, at::zeros_like(weights)).to(at::kFloat);
}

}  // namespace

std::string data_path(const TaskConfig& settings, const std::string& file) {
  const auto& root = settings.data.root;
  return base::find_path(root.empty() || file.empty() || file.starts_with('/') ? file : root + "/" + file);
}

char delimiter_of(const TaskConfig& settings) {
  const auto& delimiter = settings.task.delimiter;
  return delimiter.empty() ? ',' : delimiter[0];
}

std::vector<std::string> numbered(int64_t classes) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < classes; ++i) names.push_back(format("{}", i));
  return names;
}

void refuse_memory(const char* samples) {
  throw InputError(format("the checkpoint was not trained with a task on {}", samples), "lockstep.task",
                   "set task.name to the task that the checkpoint was trained with");
}

std::string label_text(const std::string& name, int64_t column) {
  return format("label: {} (column {})", base::printable(name), column);
}

void add_balance(TaskData& data, const at::Tensor& train, const at::Tensor& eval, const TaskSettings& task) {
  if (data.regression) {
    data.notes.insert(data.notes.end(), {range_text("train", train), range_text("eval", eval)});
    return;
  }
  const auto classes = static_cast<int64_t>(data.class_names.size());
  const auto counts = at::bincount(train, {}, classes);
  data.notes.push_back(balance_text("train", counts, data.class_names));
  data.notes.push_back(balance_text("eval", at::bincount(eval, {}, classes), data.class_names));
  if (!task.weighs_classes()) return;
  data.class_weights = balanced_weights(counts);
  std::vector<std::string> weights;
  for (int64_t i = 0; i < classes; ++i)
    weights.push_back(format("class {}: {:.3f}", base::printable(data.class_names[static_cast<size_t>(i)]),
                             data.class_weights[i].item<float>()));
  data.notes.push_back("class weights in the loss (balanced): " + base::join(weights, ", "));
}

LabelScale scale_of(const at::Tensor& numbers) {
  if (numbers.numel() == 0) return {};
  const auto wide = numbers.to(at::kDouble);
  const auto mean = wide.mean();
  const double variance = (wide - mean).square().mean().item<double>();
  return {mean.item<double>(), variance > 0 ? std::sqrt(variance) : 1};
}

at::Tensor scaled(const at::Tensor& numbers, const LabelScale& scale) {
  return ((numbers.to(at::kDouble) - scale.mean) / scale.std).to(at::kFloat);
}

bool wants_scale(const TaskSettings& task) {
  return task.normalize_label == "standard" || (task.normalize_label == "auto" && task.normalize != "none");
}

StratifiedSplit stratified(const at::Tensor& labels, size_t classes, double eval_fraction, int64_t seed) {
  std::vector<std::vector<int64_t>> rows(classes);
  const auto* label = labels.is_floating_point() ? nullptr : labels.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < labels.size(0); ++i) rows[label ? label[i] : 0].push_back(i);
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  StratifiedSplit split;
  for (const auto& members : rows) {
    const auto count = static_cast<int64_t>(members.size());
    const auto order = at::randperm(count, generator);
    const auto kept = static_cast<int64_t>(std::llround(eval_fraction * static_cast<double>(count)));
    for (int64_t i = 0; i < count; ++i)
      (i < kept ? split.eval : split.train).push_back(members[order.const_data_ptr<int64_t>()[i]]);
  }
  std::sort(split.train.begin(), split.train.end());
  std::sort(split.eval.begin(), split.eval.end());
  return split;
}

}  // namespace lockstep::tasks
