// Tasks on CSV tables: Pima, and anyone's.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/data/catalog.h"
#include "lockstep/data/csv.h"
#include "lockstep/data/npy.h"
#include "lockstep/data/table_set.h"
#include "lockstep/tasks/balance.h"
#include "lockstep/tasks/packed.h"
#include "lockstep/tasks/task.h"

namespace lockstep::tasks {
namespace {

struct TableRecipe {
  std::string file;
  std::string eval_file;  // empty = a part of `file`
  CsvOptions csv;
  bool detect_header = false;           // a first line that does not begin with a number names the columns
  std::vector<std::string> names = {};  // of the features, for messages; empty = any number of them
  std::vector<int64_t> zero_is_missing = {};  // features whose zeros become the training rows' median
  double eval_fraction = 0.2;
  std::string normalize = "standard";  // standard | none | mean_std
  std::vector<double> mean = {}, std = {};
};

/// Each value becomes (value - mean) / std, after a zero that means a missing value became `fill`, and an
/// empty cell `missing`. All double [columns].
struct Preprocessing {
  at::Tensor fill;  // NaN where zeros are values
  at::Tensor mean, std;
  at::Tensor missing = {};  // undefined if empty cells are refused
};

/// Some rows of a table.
CsvTable part_of(CsvTable table, const std::vector<int64_t>& rows, Arena& arena) {
  for (auto* tensor : {&table.features, &table.labels}) {
    auto shape = tensor->sizes().vec();
    shape[0] = static_cast<int64_t>(rows.size());
    auto into = arena.empty(shape, tensor->scalar_type());
    at::index_select_out(into, *tensor, 0, at::tensor(rows, at::kLong));
    *tensor = into;
  }
  return table;
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
  for (int64_t row = 0; row < table.size(0); ++row)
    for (int64_t column = 0; column < table.size(1); ++column, ++value) each(*value, column);
}

/// A cell's value, or the one that replaces a missing value.
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

// Two passes in double, without a copy of the table.
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

at::Tensor means_for_missing(const TableRecipe& recipe, const CsvTable& train) {
  auto table = train.features;
  std::vector<double> sum(table.size(1)), count(table.size(1));
  for_each_value(table, [&](float value, int64_t c) {
    if (!std::isnan(value)) sum[c] += value, count[c] += 1;
  });
  std::vector<std::string> empty;
  for (size_t c = 0; c < sum.size(); ++c) {
    if (count[c] == 0) empty.push_back(train.feature_names()[c]);
    sum[c] /= count[c];
  }
  if (empty.empty()) return at::tensor(sum, at::kDouble);
  const auto names = base::printable(base::join(empty, ", "), 300);
  throw InputError(format("no training row has a value in {}, so there is no mean to fill in", names),
                   recipe.file, format("leave the empty columns out: task.ignore: [{}]", names));
}

Preprocessing preprocessing_for(const TableRecipe& recipe, const CsvTable& table) {
  const auto& train = table.features;
  const int64_t columns = train.size(1);
  Preprocessing treatment;
  treatment.fill = at::full({columns}, std::numeric_limits<double>::quiet_NaN(), at::kDouble);
  for (int64_t c : recipe.zero_is_missing) treatment.fill[c] = median_without_zeros(train.select(1, c));
  if (recipe.csv.missing == MissingValues::mean) treatment.missing = means_for_missing(recipe, table);
  treatment.mean = at::zeros({columns}, at::kDouble);
  treatment.std = at::ones({columns}, at::kDouble);
  if (recipe.normalize == "standard") standardise(train, treatment);
  if (recipe.normalize == "mean_std") {
    if (static_cast<int64_t>(recipe.mean.size()) != columns)
      throw InputError(
          format("task.mean has {} numbers, the table has {} features", recipe.mean.size(), columns),
          "task.mean", "give one number per feature in task.mean and in task.std");
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
  if (data::is_array_file(file))
    return options.header = data::has_named_arrays(file), options.delimiter = ',', options;
  if (options.delimiter == ',') options.delimiter = find_delimiter(file);
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
    parts.push_back(format("{} in {} (now {:g})", zeros, recipe.names[c], treatment.fill[c].item<double>()));
  }
  return parts.empty() ? ""
                       : "zeros that mean a missing value, filled with the training rows' median: " +
                             base::join(parts, ", ");
}

// What was found in the file instead of commas and decimal points; "" if nothing was.
std::string dialect_text(const std::string& file, char delimiter, const CsvTable& table) {
  if (delimiter == ',') return "";
  return format("{}: columns are separated by {}{}", file,
                delimiter == '\t' ? "tabs" : format("'{}'", delimiter),
                table.decimal_commas ? ", numbers have decimal commas" : "");
}

// What happened to empty cells; "" if there were none.
std::string gaps_text(const std::string& file, const CsvTable& table) {
  if (table.missing.empty()) return "";
  std::vector<std::string> counts;
  for (const auto& [name, count] : table.missing)
    counts.push_back(format("{} {}", base::printable(name), count));
  const auto cells = "cells without a value: " + base::join(counts, ", ");
  const auto rows = table.features.size(0);
  if (table.dropped > 0)
    return format("{}: {} of {} rows omitted, {}", file, table.dropped, table.dropped + rows, cells);
  return format("{}: {}, filled in with the training rows' mean", file, cells);
}

std::string ids_text(const std::vector<std::string>& ids) {
  const auto names = base::printable(base::join(ids, ", "), 300);
  return format("a different whole number in every row, like an id: {} (to leave it out: task.ignore: [{}])",
                names, names);
}

/// One text per row, each filled up with zeros.
at::Tensor column_of_texts(const std::vector<std::string>& names, const at::Tensor& rows) {
  size_t width = 1;
  for (const auto& name : names) width = std::max(width, name.size());
  auto texts =
      at::zeros({std::ssize(names) + 1, static_cast<int64_t>(width)}, at::kByte);  // the last is empty
  for (size_t i = 0; i < names.size(); ++i)
    std::copy(names[i].begin(), names[i].end(), texts.mutable_data_ptr<uint8_t>() + i * width);
  return texts.index_select(0, rows);
}

/// The table's columns by their names in the file. Those that the config does not use keep their places,
/// without values.
Tree columns_of(const CsvTable& table, const std::vector<std::string>& header, const std::string& file) {
  std::map<std::string, at::Tensor> used;
  int64_t first = 0;
  for (size_t c = 0; c < table.columns.size(); ++c) {
    const auto& values = table.values[c];
    const auto cells = table.features.narrow(1, first, std::max<int64_t>(std::ssize(values), 1));
    first += cells.size(1);
    used[table.columns[c]] = values.empty()
                                 ? cells.flatten()
                                 : column_of_texts(values, at::where(cells.select(1, 0).isnan(),
                                                                     std::ssize(values), cells.argmax(1)));
  }
  const auto tree = make_dict();
  for (size_t i = 0; i < header.size(); ++i) {
    auto column = used.contains(header[i])
                      ? used[header[i]]
                      : column_of_texts({}, at::zeros_like(table.labels, at::kLong).flatten());
    if (static_cast<int64_t>(i) == table.label_column)
      column = table.labels.is_floating_point() ? table.labels.flatten()
                                                : column_of_texts(table.class_names, table.labels);
    auto name = header[i];
    while (find(tree, name) || (name != header[i] && std::ranges::count(header, name) > 0))
      name += "_";  // neither is used
    if (base::invalid_utf8(name) || name == "__metadata__")
      throw InputError(format("the column {} cannot have this name in a packed file", base::printable(name)),
                       file, "rename it");
    put(tree, name, column);
  }
  return tree;
}

// tensors: train x and y, evaluation x and y, then the preprocessing's
SharedSet load_tables(const TableRecipe& recipe, const TaskConfig& settings, Arena& arena) {
  Arena scratch;  // for the whole table before the split
  const auto& stage = settings.data.stage;
  const bool own_eval = !recipe.eval_file.empty();
  const auto file = data::stage_file(recipe.file, stage);
  auto options = options_for(recipe, file);
  const auto table = read_csv(file, options, own_eval ? arena : scratch);
  if (!recipe.names.empty() && recipe.names.size() != table.columns.size())
    throw InputError(format("the table has {} features, but this task has {}: {}", table.columns.size(),
                            recipe.names.size(), base::join(recipe.names, ", ")),
                     recipe.file, "give a file with these columns in this order and the label last");
  if (table.class_names.size() < 2 && !recipe.csv.numbers)
    throw InputError("every row has the same label: there is nothing to learn", recipe.file,
                     "set task.label to the column of the label, or add rows of another class");
  CsvTable train, eval;
  std::vector<std::string> notes = {dialect_text(recipe.file, options.delimiter, table),
                                    gaps_text(recipe.file, table)};
  if (own_eval) {
    const auto eval_file = data::stage_file(recipe.eval_file, stage);
    options = options_for(recipe, eval_file);
    options.class_names = table.class_names;
    if (!options.ignore.empty() || !options.categories.empty()) {  // it may lack the ignored columns
      options.features = table.columns;
      options.values = table.values;
    }
    options.ignore = options.categories = {};
    train = table;
    eval = read_csv(eval_file, options, arena);
    notes.push_back(gaps_text(recipe.eval_file, eval));
    if (eval.columns != train.columns)
      throw InputError("the evaluation file has other columns than the training file", recipe.eval_file,
                       "give both the same columns in the same order, or leave task.eval_file empty");
  } else {
    const auto rows = stratified(table.labels, table.class_names.size(), recipe.eval_fraction, settings.seed);
    train = part_of(table, rows.train, arena);
    eval = part_of(table, rows.eval, arena);
  }
  if (train.labels.numel() == 0)
    throw InputError("no row is left to train on", recipe.file, "lower task.eval_fraction");
  const auto treatment = preprocessing_for(recipe, train);
  notes.push_back(missing_text(recipe, table, treatment));
  std::erase(notes, "");
  apply(treatment, train.features);
  apply(treatment, eval.features);
  SharedSet set{{train.features, train.labels, eval.features, eval.labels, treatment.fill, treatment.mean,
                 treatment.std},
                {}};
  if (treatment.missing.defined()) set.tensors.push_back(treatment.missing);
  // once for the node: ranks with different numbers of threads would differ in the last bit
  const auto scale =
      train.labels.is_floating_point() && wants_scale(settings.task) ? scale_of(train.labels) : LabelScale{};
  nlohmann::json::to_msgpack({{"label", table.label},
                              {"scale", {scale.mean, scale.std}},
                              {"label_column", table.label_column},
                              {"columns", table.columns},
                              {"values", table.values},
                              {"classes", table.class_names},
                              {"notes", notes},
                              {"ids", table.ids}},
                             set.text);
  return set;
}

TableRecipe csv(const TaskConfig& settings, Look);

class TableTask : public Task, public PackableTask {
 public:
  using Recipe = TableRecipe (*)(const TaskConfig& settings, Look look);
  explicit TableTask(Recipe recipe) : recipe_(recipe) {}

  /// The rows kept for evaluation are drawn from each class, seeded by run.seed, and stay in the file's
  /// order. Fills and normalization are computed from the training rows alone.
  TaskData data(const TaskConfig& settings, const NodeShare& node) override {
    const auto set = share_on_node(
        node, [&](Arena& arena) { return load_tables(recipe_(settings, Look::all), settings, arena); });
    const auto facts = nlohmann::json::from_msgpack(set.text);
    const auto &train_x = set.tensors[0], &eval_x = set.tensors[2];
    auto train_y = set.tensors[1], eval_y = set.tensors[3];
    treatment_ = {set.tensors[4], set.tensors[5], set.tensors[6]};
    if (set.tensors.size() > 7) treatment_.missing = set.tensors[7];
    facts.at("columns").get_to(columns_);
    facts.at("values").get_to(values_);
    TaskData data;
    data.label = facts.at("label");
    facts.at("classes").get_to(data.class_names);
    data.input_shape = {train_x.size(1)};
    regression_ = data.regression = train_y.is_floating_point();
    if (recipe_(settings, Look::no).names.empty())
      data.notes.push_back(label_text(data.label, facts.at("label_column")));
    add_balance(data, train_y, eval_y, settings.task);
    for (const auto& note : facts.at("notes")) data.notes.push_back(note);
    if (!facts.at("ids").empty()) data.warnings.push_back(ids_text(facts.at("ids")));
    if (regression_ && wants_scale(settings.task)) {
      data.label_scale = {facts.at("scale").at(0), facts.at("scale").at(1)};
      train_y = scaled(train_y, *data.label_scale);
      eval_y = scaled(eval_y, *data.label_scale);
    }
    data.train = std::make_shared<TableSet>(train_x, train_y);
    data.eval = std::make_shared<TableSet>(eval_x, eval_y);
    return data;
  }

  // Without a file of its own, the set is drawn from the whole table, as data() draws it.
  std::shared_ptr<const Dataset> evaluation(const TaskConfig& settings, const TaskData& known,
                                            const NodeShare& node) override {
    regression_ = known.regression;
    const auto set = share_on_node(node, [&](Arena& arena) {
      const auto recipe = recipe_(settings, Look::all);
      const bool own = !recipe.eval_file.empty();
      const auto file = data::stage_file(own ? recipe.eval_file : recipe.file, settings.data.stage);
      auto options = options_for(recipe, file);
      options.features = columns_;
      options.values = values_;
      options.ignore = options.categories = {};
      if (treatment_.missing.defined() && options.missing == MissingValues::refuse)
        options.missing = MissingValues::mean;
      if (!treatment_.missing.defined() && options.missing == MissingValues::mean)
        throw InputError("the run filled in no cells, so there are no means to fill in", "task.missing",
                         "set it to drop, which omits rows with such cells, or train with mean");
      if (!known.regression) options.class_names = known.class_names;
      Arena scratch;
      auto table = read_csv(file, options, own ? arena : scratch);
      const auto gaps = gaps_text(own ? recipe.eval_file : recipe.file, table);
      if (!own) {
        const auto rows =
            stratified(table.labels, table.class_names.size(), recipe.eval_fraction, settings.seed);
        table = part_of(table, rows.eval, arena);
      }
      apply(treatment_, table.features);
      if (known.label_scale) table.labels.copy_(scaled(table.labels, *known.label_scale));
      return SharedSet{{table.features, table.labels}, gaps};
    });
    if (!set.text.empty()) log::info(set.text);
    return std::make_shared<TableSet>(set.tensors[0], set.tensors[1]);
  }

  /// A table with the features, with or without the label. Columns go by name. Without names, a file with
  /// just the features has them in order.
  std::shared_ptr<const Dataset> inputs(const TaskConfig& settings, const TaskData&,
                                        const std::string& path) const override {
    const auto file = base::find_path(path);
    auto options = options_for(recipe_(settings, Look::no), file);
    options.labelled = false;
    options.values = values_;
    options.ignore = options.categories = {};
    options.missing = treatment_.missing.defined() ? MissingValues::mean : MissingValues::refuse;
    const bool bare = !options.header && first_csv_line(file, options.delimiter).size() == columns_.size();
    options.features = bare ? std::vector<std::string>() : columns_;
    Arena scratch;
    auto table = read_csv(file, options, scratch);
    apply(treatment_, table.features);
    return std::make_shared<TableSet>(table.features, at::Tensor());
  }

  std::string packed_ending() const override { return recipe_ == csv ? ".safetensors" : ""; }

  int64_t pack(const TaskConfig& settings, const std::string& path) override {
    const auto recipe = recipe_(settings, Look::all);
    auto options = options_for(recipe, recipe.file);
    options.check_labels = false;  // training does it; an evaluation file may have few rows
    Arena arena;
    const auto table = read_csv(recipe.file, options, arena);
    auto header = first_csv_line(recipe.file, options.delimiter);
    for (size_t i = 0; !options.header && i < header.size(); ++i) header[i] = format("{}", i);
    write_safetensors(path, columns_of(table, header, recipe.file), {}, readable_as({recipe.file}));
    return table.features.size(0);
  }

  std::optional<TaskMemory> memory() const override {
    // copies, since these are in the node's shared memory
    TaskMemory memory{{treatment_.fill.clone(), treatment_.mean.clone(), treatment_.std.clone()}, columns_};
    if (treatment_.missing.defined()) memory.tensors.push_back(treatment_.missing.clone());
    std::vector<int64_t> counts;
    for (const auto& its : values_) {
      counts.push_back(std::ssize(its));
      memory.texts.insert(memory.texts.end(), its.begin(), its.end());
    }
    if (memory.texts.size() > columns_.size()) memory.tensors.push_back(at::tensor(counts, at::kLong));
    return memory;
  }

  void recall(const TaskMemory& memory) override {
    auto [tensors, texts] = memory;
    values_.assign(texts.size(), {});
    if (!tensors.empty() && tensors.back().scalar_type() == at::kLong) {
      const auto counts = tensors.back();  // of each column's values, which follow the columns
      tensors.pop_back();
      size_t next = counts.numel();
      if (counts.lt(0).any().item<bool>() ||
          counts.sum().item<int64_t>() + counts.numel() != std::ssize(texts))
        refuse_memory("a table");
      values_.assign(next, {});
      for (size_t c = 0; c < values_.size(); ++c)
        for (int64_t i = counts[c].item<int64_t>(); i > 0; --i) values_[c].push_back(texts.at(next++));
      texts.resize(values_.size());
    }
    columns_ = texts;
    const auto width = std::ssize(CsvTable{.columns = columns_, .values = values_}.feature_names());
    const bool fits = std::all_of(tensors.begin(), tensors.end(), [width](const at::Tensor& t) {
      return t.sizes() == at::IntArrayRef{width} && t.scalar_type() == at::kDouble;
    });
    if ((tensors.size() != 3 && tensors.size() != 4) || !fits) refuse_memory("a table");
    treatment_ = {tensors[0], tensors[1], tensors[2]};
    if (tensors.size() == 4) treatment_.missing = tensors[3];
  }

  KnownLoss known_loss() const override {
    return regression_ ? KnownLoss::mean_squared_error : KnownLoss::cross_entropy;
  }

 private:
  Recipe recipe_;
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> values_;  // of each column, CsvTable's
  Preprocessing treatment_;
  bool regression_ = false;
};

// A table of numbers with a label, described by the keys of `task`.

TableRecipe csv(const TaskConfig& settings, Look) {
  const auto& task = settings.task;
  if (task.file.empty())
    throw InputError("the csv task needs a file", "task.file", "set task: {name: csv, file: my.csv}");
  return {.file = data_path(settings, task.file),
          .eval_file = data_path(settings, task.eval_file),
          .csv = {.delimiter = delimiter_of(settings),
                  .header = task.header,
                  .numbers = task.is_regression(),
                  .label = task.label,
                  .features = task.features,
                  .ignore = task.ignore,
                  .categories = task.categories,
                  .missing = task.missing == "drop"   ? MissingValues::drop
                             : task.missing == "mean" ? MissingValues::mean
                                                      : MissingValues::refuse,
                  .classes = task.classes},
          .eval_fraction = task.eval_fraction,
          .normalize = task.normalize,
          .mean = task.mean,
          .std = task.std};
}

// Diabetes among Pima women: 768 rows of 8 numbers and a class, 268 of them positive.

const std::vector<std::string> kColumns{"pregnancies", "glucose", "pressure", "skin",
                                        "insulin",     "bmi",     "pedigree", "age"};

TableRecipe pima(const TaskConfig& settings, Look look) {
  TableRecipe recipe{.file = {},
                     .eval_file = {},
                     .csv = {.header = false, .label = "-1", .classes = 2},
                     .detect_header = true,
                     .names = kColumns};
  // The file has 0 for a missing measurement, such as the blood pressure.
  recipe.zero_is_missing = {1, 2, 3, 4, 5};
  recipe.eval_fraction = settings.task.eval_fraction;
  if (look == Look::no) return recipe;
  const auto& root = settings.data.root.empty() ? "data/pima" : settings.data.root;
  recipe.file = std::filesystem::is_regular_file(base::find_path(root))
                    ? base::find_path(root)
                    : data::find_data_file(root, {"pima-indians-diabetes.csv", "diabetes.csv"}, "pima");
  return recipe;
}

}  // namespace

LOCKSTEP_TASK(
    csv, .help = "your table; predicts classes, or numbers with `kind: regression`",
    .reads = {"kind", "file", "eval_file", "delimiter", "label", "features", "ignore", "categories",
              "missing", "header", "eval_fraction", "classes", "normalize", "mean", "std", "normalize_label"},
    .defaults = {{"model.name", "mlp"}}, .make = [] { return std::make_unique<TableTask>(csv); })

LOCKSTEP_TASK(
    pima, .help = "768 rows in data.root: diabetes among Pima women", .reads = {"eval_fraction"},
    .defaults = {{"model.name", "pima_net"}}, .make = [] { return std::make_unique<TableTask>(pima); })

}  // namespace lockstep::tasks
