// Tasks on CSV tables: Pima, and anyone's.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/log.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "lockstep/data/catalog.h"
#include "lockstep/data/csv.h"
#include "lockstep/data/table_set.h"
#include "lockstep/tasks/balance.h"
#include "lockstep/tasks/task.h"

namespace lockstep::tasks {
namespace {

struct TableRecipe {
  std::string file;
  std::string eval_file;  // empty = a part of `file`
  CsvOptions csv;
  bool detect_header = false;  // a first line that does not begin with a number names the columns
  std::vector<std::string> names =
      {};  // of the features, to speak of; they must be as many. Empty = any table
  std::vector<int64_t> zero_is_missing = {};  // features whose zeros become the training rows' median
  double eval_fraction = 0.2;
  std::string normalize = "standard";  // standard | none | mean_std
  std::vector<double> mean = {}, std = {};
  std::string model = "mlp";  // the task's own
};

/// What is done to each column: (value, or `fill` where a zero means missing, or `missing` where there is
/// none;
/// - mean) / std. All double [columns].
struct Preprocessing {
  at::Tensor fill;  // NaN where zeros are values
  at::Tensor mean, std;
  at::Tensor missing = {};  // undefined where such cells are refused
};

class TableTask : public Task {
 public:
  /// `look` is set where the files may be looked for: on the node's first rank.
  using Recipe = TableRecipe (*)(const TaskConfig& settings, bool look);
  explicit TableTask(Recipe recipe) : recipe_(recipe) {}
  /// The rows kept for evaluation are drawn class by class (stratified), seeded by run.seed; each set keeps
  /// the file's order. Fills and normalisation are computed on the training rows alone.
  TaskData data(const TaskConfig& settings, const NodeShare& node) override;
  std::shared_ptr<const Dataset> evaluation(const TaskConfig& settings, const TaskData& known,
                                            const NodeShare& node) override;
  /// Of numbers the mean squared error.
  at::Tensor loss(const at::Tensor& output, const at::Tensor& target,
                  const LossOptions& options) const override;
  std::unique_ptr<Metrics> metrics(const TaskData& data) const override;
  std::shared_ptr<Net> model(const TaskConfig& settings, const TaskData& data) override;
  /// A CSV of the features, with or without the label's column.
  std::shared_ptr<const Dataset> inputs(const TaskConfig& settings, const TaskData& data,
                                        const std::string& path) const override;
  std::optional<TaskMemory> memory() const override;
  void recall(const TaskMemory& memory) override;
  KnownLoss known_loss() const override {
    return regression_ ? KnownLoss::mean_squared_error : KnownLoss::cross_entropy;
  }

 private:
  Recipe recipe_;
  std::vector<std::string> columns_;
  Preprocessing treatment_;
  bool regression_ = false;
};

// Anyone's table of numbers with a class column, described by the keys of `task`.

std::string table_path(const std::string& root, const std::string& file) {
  return base::find_path(root.empty() || file.empty() || file.starts_with('/') ? file : root + "/" + file);
}

Missing missing_of(const std::string& name) {
  return name == "drop" ? Missing::drop : name == "mean" ? Missing::mean : Missing::refuse;
}

TableRecipe csv(const TaskConfig& settings, bool) {
  const auto& task = settings.task;
  if (task.file.empty())
    throw InputError("the csv task needs a file", "task.file", "task: {name: csv, file: my.csv}");
  return {.file = table_path(settings.data.root, task.file),
          .eval_file = table_path(settings.data.root, task.eval_file),
          .csv = {.delimiter = task.delimiter.empty() ? ',' : task.delimiter[0],
                  .header = task.header,
                  .numbers = task.is_regression(),
                  .label = task.label,
                  .features = task.features,
                  .ignore = task.ignore,
                  .missing = missing_of(task.missing),
                  .classes = task.classes},
          .eval_fraction = task.eval_fraction,
          .normalize = task.normalize,
          .mean = task.mean,
          .std = task.std};
}

}  // namespace

LOCKSTEP_TASK(
    csv, .help = "your table: classes, or with `kind: regression` a number",
    .reads = {"kind", "file", "eval_file", "delimiter", "label", "features", "ignore", "missing", "header",
              "eval_fraction", "classes", "normalize", "mean", "std", "normalize_label"},
    .defaults = {{"model.name", "mlp"}}, .make = [] { return std::make_unique<TableTask>(csv); })

// Diabetes among Pima women: 768 rows of 8 numbers and a class, 268 of them positive.

namespace {

const std::vector<std::string> kColumns{"pregnancies", "glucose", "pressure", "skin",
                                        "insulin",     "bmi",     "pedigree", "age"};

TableRecipe pima(const TaskConfig& settings, bool look) {
  TableRecipe recipe{.file = {},
                     .eval_file = {},
                     .csv = {.header = false, .label = "-1", .classes = 2},
                     .detect_header = true,
                     .names = kColumns};
  // The file codes a missing measurement as 0; nobody alive has a blood pressure of 0.
  recipe.zero_is_missing = {1, 2, 3, 4, 5};
  recipe.eval_fraction = settings.task.eval_fraction;
  recipe.model = "pima_net";
  if (!look) return recipe;
  const auto& root = settings.data.root.empty() ? "data/pima" : settings.data.root;
  recipe.file = std::filesystem::is_regular_file(base::find_path(root))
                    ? base::find_path(root)
                    : data::find_data_file(root, {"pima-indians-diabetes.csv", "diabetes.csv"});
  return recipe;
}

}  // namespace

LOCKSTEP_TASK(
    pima, .help = "768 rows in data.root: diabetes among Pima women", .reads = {"eval_fraction"},
    .defaults = {{"model.name", "pima_net"}}, .make = [] { return std::make_unique<TableTask>(pima); })

namespace {

at::Tensor picked(const at::Tensor& from, const std::vector<int64_t>& rows, Arena& arena) {
  auto shape = from.sizes().vec();
  shape[0] = static_cast<int64_t>(rows.size());
  auto into = arena.empty(shape, from.scalar_type());
  at::index_select_out(into, from, 0, at::tensor(rows, at::kLong));
  return into;
}

double median_without_zeros(const at::Tensor& column) {
  const auto values = std::get<0>(column.index({column != 0}).to(at::kDouble).sort());
  const int64_t count = values.numel();
  if (count == 0) return 0;
  return (values[(count - 1) / 2].item<double>() + values[count / 2].item<double>()) / 2;
}

template <class Each>
void for_each_value(at::Tensor& table, const Each& each) {
  float* value = table.mutable_data_ptr<float>();
  for (int64_t row = 0; row < table.size(0); ++row) {
    for (int64_t column = 0; column < table.size(1); ++column, ++value) each(*value, column);
  }
}

/// A cell's value, or what replaces a missing one.
class CellValue {
 public:
  explicit CellValue(const Preprocessing& treatment)
      : fill_(treatment.fill.const_data_ptr<double>()),
        missing_(treatment.missing.defined() ? treatment.missing.const_data_ptr<double>() : nullptr) {}
  double operator()(float value, int64_t column) const {
    if (value == 0 && !std::isnan(fill_[column])) return fill_[column];
    return std::isnan(value) && missing_ ? missing_[column] : value;
  }

 private:
  const double* fill_;
  const double* missing_;
};

// Two passes in double, a column at a time without a copy of the table.
void standardise(const at::Tensor& train, Preprocessing& treatment) {
  auto table = train;
  const double rows = static_cast<double>(train.size(0));
  std::vector<double> mean(train.size(1)), variance(train.size(1));
  const CellValue value_of(treatment);
  for_each_value(table, [&](float& value, int64_t c) { mean[c] += value_of(value, c); });
  for (auto& m : mean) m /= rows;
  for_each_value(table,
                 [&](float& value, int64_t c) { variance[c] += std::pow(value_of(value, c) - mean[c], 2); });
  for (auto& v : variance) v = v > 0 ? std::sqrt(v / rows) : 1;  // a column that never changes stays 0
  treatment.mean = at::tensor(mean, at::kDouble);
  treatment.std = at::tensor(variance, at::kDouble);
}

// Of the cells that have a value.
at::Tensor means_for_missing(const TableRecipe& recipe, const CsvTable& train) {
  auto table = train.features;
  std::vector<double> sum(table.size(1)), count(table.size(1));
  for_each_value(table, [&](float value, int64_t c) {
    if (!std::isnan(value)) sum[c] += value, count[c] += 1;
  });
  std::vector<std::string> empty;
  for (size_t c = 0; c < sum.size(); ++c) {
    if (count[c] == 0) empty.push_back(train.columns[c]);
    sum[c] /= count[c];
  }
  if (empty.empty()) return at::tensor(sum, at::kDouble);
  const auto names = base::printable(base::join(empty, ", "), 300);
  throw InputError(format("no training row has a value in {}: there is no mean to fill in", names),
                   recipe.file, format("leave out what is empty: task.ignore: [{}]", names));
}

Preprocessing preprocessing_for(const TableRecipe& recipe, const CsvTable& table) {
  const auto& train = table.features;
  const int64_t columns = train.size(1);
  Preprocessing treatment;
  treatment.fill = at::full({columns}, std::numeric_limits<double>::quiet_NaN(), at::kDouble);
  for (int64_t c : recipe.zero_is_missing) treatment.fill[c] = median_without_zeros(train.select(1, c));
  if (recipe.csv.missing == Missing::mean) treatment.missing = means_for_missing(recipe, table);
  treatment.mean = at::zeros({columns}, at::kDouble);
  treatment.std = at::ones({columns}, at::kDouble);
  if (recipe.normalize == "standard") standardise(train, treatment);
  if (recipe.normalize == "mean_std") {
    if (static_cast<int64_t>(recipe.mean.size()) != columns) {
      throw InputError(
          format("task.mean has {} numbers, the table has {} features", recipe.mean.size(), columns),
          "task.mean", "give one number a feature in task.mean and in task.std");
    }
    treatment.mean = at::tensor(recipe.mean, at::kDouble);
    treatment.std = at::tensor(recipe.std, at::kDouble);
  }
  return treatment;
}

void apply(const Preprocessing& treatment, at::Tensor table) {
  const CellValue value_of(treatment);
  const double* mean = treatment.mean.const_data_ptr<double>();
  const double* std = treatment.std.const_data_ptr<double>();
  for_each_value(table, [&](float& value, int64_t c) {
    value = static_cast<float>((value_of(value, c) - mean[c]) / std[c]);
  });
}

CsvOptions options_for(const TableRecipe& recipe, const std::string& file) {
  auto options = recipe.csv;
  if (recipe.detect_header) {
    const auto first = first_csv_line(file, options.delimiter)[0];
    options.header = first.empty() || first.find_first_not_of("0123456789.-+eE") != std::string::npos;
  }
  return options;
}

std::string missing_text(const TableRecipe& recipe, const CsvTable& table, const Preprocessing& treatment) {
  std::vector<std::string> parts;
  for (int64_t c : recipe.zero_is_missing) {
    const auto zeros = (table.features.select(1, c) == 0).sum().item<int64_t>();
    parts.push_back(format("{} {} (now {:g})", recipe.names[c], zeros, treatment.fill[c].item<double>()));
  }
  return parts.empty() ? ""
                       : "zeros that mean a missing value, filled with the training rows' median: " +
                             base::join(parts, ", ");
}

// What was done with cells without a value; empty where there were none.
std::string gaps_text(const std::string& file, const CsvTable& table) {
  if (table.missing.empty()) return "";
  std::vector<std::string> counts;
  for (const auto& [name, count] : table.missing)
    counts.push_back(format("{} {}", base::printable(name), count));
  const auto cells = "cells without a value: " + base::join(counts, ", ");
  const auto rows = table.features.size(0);
  if (table.dropped > 0)
    return format("{}: {} of {} rows are left out, {}", file, table.dropped, table.dropped + rows, cells);
  return format("{}: {}, filled in with the training rows' mean", file, cells);
}

// Where a number may be what a person did not mean.
std::string doubts_text(const CsvTable& table) {
  if (table.ids.empty()) return "";
  const auto names = base::printable(base::join(table.ids, ", "), 300);
  return format("another whole number in every row, as an id has: {} (task.ignore: [{}] leaves it out)",
                names, names);
}

std::string missing_class_text(const CsvTable& table, Missing rule) {
  for (const auto& name : table.class_names)
    if (rule != Missing::drop && data::is_missing_class(name, Missing::drop))
      return format("the label has a class {}: if that means a missing one, set task.missing: drop", name);
  return "";
}

std::vector<std::string> notes_on(const TableRecipe& recipe, const CsvTable& table, const CsvTable& train,
                                  const CsvTable& eval) {
  std::vector<std::string> notes;
  if (recipe.names.empty()) notes.push_back(label_text(table.label, table.label_column));
  for (const auto& [set, labels] : {std::pair{"train", train.labels}, std::pair{"eval", eval.labels}}) {
    const auto classes = static_cast<int64_t>(table.class_names.size());
    notes.push_back(recipe.csv.numbers ? range_text(set, labels)
                                       : balance_text(set, class_counts(labels, classes), table.class_names));
  }
  return notes;
}

// tensors: train x and y, evaluation x and y, fill, mean, std; then what stands for missing cells, and the
// label's scale, where there are such. texts: the label's column, the columns, the classes, notes, warnings.
SharedSet load_tables(const TableRecipe& recipe, const TaskConfig& settings, Arena& arena) {
  Arena scratch;  // for the file as it is before it is split
  const auto& stage = settings.data.stage;
  const bool own_eval = !recipe.eval_file.empty();
  const auto table = read_csv(data::stage_file(recipe.file, stage), options_for(recipe, recipe.file),
                              own_eval ? arena : scratch);
  if (!recipe.names.empty() && recipe.names.size() != table.columns.size()) {
    throw InputError(format("the table has {} features where this task has {}: {}", table.columns.size(),
                            recipe.names.size(), base::join(recipe.names, ", ")),
                     recipe.file, "give a file with these columns in this order and the label last");
  }
  if (table.class_names.size() < 2 && !recipe.csv.numbers)
    throw InputError("every row has the same label: there is nothing to learn", recipe.file,
                     "is task.label the label's column? give rows of two classes or more");
  CsvTable train = table, eval;
  std::string own_gaps;
  if (own_eval) {
    auto options = options_for(recipe, recipe.eval_file);
    options.class_names = table.class_names;
    if (!options.ignore.empty()) options.features = table.columns;  // it need not have those to ignore
    options.ignore = {};
    eval = read_csv(data::stage_file(recipe.eval_file, stage), options, arena);
    own_gaps = gaps_text(recipe.eval_file, eval);
    if (eval.columns != train.columns) {
      throw InputError("the evaluation file has other columns than the training file", recipe.eval_file,
                       "give both the same columns in the same order, or leave task.eval_file empty");
    }
  } else {
    const auto split =
        stratified(table.labels, table.class_names.size(), recipe.eval_fraction, settings.seed);
    train.features = picked(table.features, split.train, arena);
    train.labels = picked(table.labels, split.train, arena);
    eval.features = picked(table.features, split.eval, arena);
    eval.labels = picked(table.labels, split.eval, arena);
  }
  if (train.labels.numel() == 0)
    throw InputError("no row is left to train on", recipe.file, "lower task.eval_fraction");
  const auto treatment = preprocessing_for(recipe, train);
  auto notes = notes_on(recipe, table, train, eval);
  notes.insert(notes.end(),
               {gaps_text(recipe.file, table), own_gaps, missing_text(recipe, table, treatment)});
  std::erase(notes, "");
  std::vector<std::string> warnings = {doubts_text(table), missing_class_text(table, recipe.csv.missing)};
  std::erase(warnings, "");
  apply(treatment, train.features);
  apply(treatment, eval.features);
  SharedSet set{
      {train.features, train.labels, eval.features, eval.labels, treatment.fill, treatment.mean,
       treatment.std},
      base::pack_texts({table.label, base::pack_texts(table.columns), base::pack_texts(table.class_names),
                        base::pack_texts(notes), base::pack_texts(warnings)})};
  if (treatment.missing.defined()) set.tensors.push_back(treatment.missing);
  if (!recipe.csv.numbers || !wants_scale(settings.task)) return set;
  const auto scale = scale_of(train.labels);
  train.labels.copy_(scaled(train.labels, scale));
  eval.labels.copy_(scaled(eval.labels, scale));
  set.tensors.push_back(at::tensor({scale.mean, scale.std}, at::kDouble));
  return set;
}

}  // namespace

TaskData TableTask::data(const TaskConfig& settings, const NodeShare& node) {
  const auto set = share_on_node(
      node, [&](Arena& arena) { return load_tables(recipe_(settings, true), settings, arena); });
  treatment_ = {set.tensors[4], set.tensors[5], set.tensors[6]};
  const auto texts = base::unpack_texts(set.text);
  columns_ = base::unpack_texts(texts.at(1));
  TaskData data;
  data.label = texts.at(0);
  data.class_names = base::unpack_texts(texts.at(2));
  data.notes = base::unpack_texts(texts.at(3));
  data.warnings = base::unpack_texts(texts.at(4));
  data.train = std::make_shared<TableSet>(set.tensors[0], set.tensors[1]);
  data.eval = std::make_shared<TableSet>(set.tensors[2], set.tensors[3]);
  data.input_shape = {set.tensors[0].size(1)};
  regression_ = data.regression = set.tensors[1].is_floating_point();
  size_t next = 7;
  if (recipe_(settings, false).csv.missing == Missing::mean) treatment_.missing = set.tensors.at(next++);
  if (set.tensors.size() > next) {
    const double* scale = set.tensors[next].const_data_ptr<double>();
    data.label_scale = {scale[0], scale[1]};
  }
  if (regression_) return data;
  const auto classes = static_cast<int64_t>(data.class_names.size());
  const auto counts = class_counts(set.tensors[1], classes);
  if (settings.task.weighs_classes()) {
    data.class_weights = balanced_weights(counts);
    std::vector<std::string> weights;
    for (int64_t i = 0; i < classes; ++i) {
      weights.push_back(format("{} {:.3f}", data.class_names[i], data.class_weights[i].item<float>()));
    }
    data.notes.push_back("class weights in the loss (balanced): " + base::join(weights, ", "));
  }
  return data;
}

// Without a file of its own the set is drawn from the whole table, as data() draws it.
std::shared_ptr<const Dataset> TableTask::evaluation(const TaskConfig& settings, const TaskData& known,
                                                     const NodeShare& node) {
  regression_ = known.regression;
  const auto set = share_on_node(node, [&](Arena& arena) {
    const auto recipe = recipe_(settings, true);
    const bool own = !recipe.eval_file.empty();
    const auto& file = own ? recipe.eval_file : recipe.file;
    auto options = options_for(recipe, file);
    options.features = columns_;
    options.ignore = {};
    if (treatment_.missing.defined() && options.missing == Missing::refuse) options.missing = Missing::mean;
    if (!treatment_.missing.defined() && options.missing == Missing::mean)
      throw InputError("the run filled in no cells, so there are no means to fill in", "task.missing",
                       "set it to drop, which leaves rows with such cells out, or train with mean");
    if (!known.regression) options.class_names = known.class_names;
    Arena scratch;
    auto table = read_csv(data::stage_file(file, settings.data.stage), options, own ? arena : scratch);
    const auto gaps = gaps_text(file, table);
    if (!own) {
      const auto split =
          stratified(table.labels, table.class_names.size(), recipe.eval_fraction, settings.seed);
      table.features = picked(table.features, split.eval, arena);
      table.labels = picked(table.labels, split.eval, arena);
    }
    apply(treatment_, table.features);
    if (known.label_scale) table.labels.copy_(scaled(table.labels, *known.label_scale));
    return SharedSet{{table.features, table.labels}, gaps};
  });
  if (!set.text.empty()) log::info(set.text);
  return std::make_shared<TableSet>(set.tensors[0], set.tensors[1]);
}

at::Tensor TableTask::loss(const at::Tensor& output, const at::Tensor& target,
                           const LossOptions& options) const {
  return regression_ ? at::mse_loss(output, target, options.reduction) : Task::loss(output, target, options);
}

std::unique_ptr<Metrics> TableTask::metrics(const TaskData& data) const {
  if (data.regression) return std::make_unique<NumberMetrics>(data.label_scale.value_or(LabelScale{}));
  return Task::metrics(data);
}

std::shared_ptr<Net> TableTask::model(const TaskConfig& settings, const TaskData& data) {
  return make_model(settings.model, recipe_(settings, false).model, data.input_shape,
                    static_cast<int64_t>(data.class_names.size()));
}

std::optional<TaskMemory> TableTask::memory() const {
  // copies: these lie in the node's shared memory
  TaskMemory memory{{treatment_.fill.clone(), treatment_.mean.clone(), treatment_.std.clone()}, columns_};
  if (treatment_.missing.defined()) memory.tensors.push_back(treatment_.missing.clone());
  return memory;
}

void TableTask::recall(const TaskMemory& memory) {
  const auto columns = static_cast<int64_t>(memory.texts.size());
  const auto fits = [columns](const at::Tensor& t) {
    return t.sizes() == at::IntArrayRef{columns} && t.scalar_type() == at::kDouble;
  };
  const auto count = memory.tensors.size();
  if ((count != 3 && count != 4) || !std::all_of(memory.tensors.begin(), memory.tensors.end(), fits)) {
    throw InputError("the checkpoint's normalisation is not one of a table", "lockstep.task",
                     "set task.name to the task that the checkpoint was trained with");
  }
  treatment_ = {memory.tensors[0], memory.tensors[1], memory.tensors[2]};
  if (count == 4) treatment_.missing = memory.tensors[3];
  columns_ = memory.texts;
}

std::shared_ptr<const Dataset> TableTask::inputs(const TaskConfig& settings, const TaskData&,
                                                 const std::string& path) const {
  const auto file = base::find_path(path);
  auto options = options_for(recipe_(settings, false), file);
  const auto first = first_csv_line(file, options.delimiter);
  // The label may be left out. Columns go by name; without names, a file of just the features has them in
  // order.
  options.labelled = false;
  options.ignore = {};
  options.missing = treatment_.missing.defined() ? Missing::mean : Missing::refuse;  // each row has an answer
  const bool bare = !options.header && first.size() == columns_.size();
  options.features = bare ? std::vector<std::string>() : columns_;
  Arena scratch;
  auto table = read_csv(file, options, scratch);
  apply(treatment_, table.features);
  return std::make_shared<TableSet>(table.features, at::Tensor());
}

}  // namespace lockstep::tasks
