#include "lockstep/tasks/text_task.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "lockstep/data/rows/labels.h"
#include "lockstep/models/bert.h"
#include "lockstep/tasks/balance.h"
#include "lockstep/tasks/read_texts.h"
#include "lockstep/tasks/stratified.h"

namespace lockstep::tasks {
namespace {

bool is_integer(const std::string& name) {
  const auto value = data::as_number(name);
  return value && std::trunc(*value) == *value;
}

// The classes of a training file in order, as a table's are; task.classes may know of more than it has.
std::vector<std::string> classes_of(const Tokenised& train, const std::string& path,
                                    const TextColumns& columns, int64_t wanted) {
  data::Labels labels;
  for (size_t i = 0; i < train.names.size(); ++i)
    labels.number(train.names[i], [&] { return format("{}:{}", path, train.first_seen[i]); });
  labels.check_classes(train.tokens.size(), columns.label, path);
  std::vector<int64_t> places;
  auto names = labels.sorted(places);
  const auto count = static_cast<int64_t>(names.size());
  if (wanted == 0 || count == wanted) return names;
  if (count > wanted || !std::all_of(names.begin(), names.end(), is_integer)) {
    throw InputError(format("the file has {} classes, task.classes says {}", count, wanted), path,
                     "the classes are " + base::printable(base::join(names, ", "), 200));
  }
  std::vector<std::string> numbers;
  for (int64_t i = 0; i < wanted; ++i) numbers.push_back(format("{}", i));
  return numbers;
}

// A file numbers its classes as they come; these are the task's numbers.
void number_classes(Tokenised& file, const std::string& path, const std::vector<std::string>& classes) {
  data::Labels labels(0, classes);
  std::vector<int64_t> places;
  for (size_t i = 0; i < file.names.size(); ++i)
    places.push_back(labels.number(file.names[i], [&] { return format("{}:{}", path, file.first_seen[i]); }));
  file.tokens.targets = at::tensor(places, at::kLong).index_select(0, file.tokens.targets);
}

std::string token_note(const Tokenised& file, const std::string& path, const TextColumns& columns,
                       int64_t most) {
  const auto samples = file.tokens.size();
  auto text = format("{}: {} samples, {:.1f} tokens each", path, samples,
                     static_cast<double>(file.tokens.ids.numel()) / static_cast<double>(samples));
  if (file.cut) text += format(", {} of {} or more (task.max_length)", file.cut, most);
  if (file.left_out) text += format("; {} with the label {} left out", file.left_out, columns.left_out);
  return text;
}

// Of texts in another language, or a vocabulary for another: a model learns nothing of [UNK].
void warn_of_unknown(const Tokens& tokens, const std::string& path, int64_t unk) {
  constexpr double kMany = 0.05;
  const auto all = static_cast<double>(std::max<int64_t>(tokens.ids.numel(), 1));
  const auto share = static_cast<double>(tokens.ids.eq(unk).sum().item<int64_t>()) / all;
  if (share < kMany) return;
  log::warning(
      format("{}: {:.0f} % of the tokens are [UNK], which the vocabulary does not know\n"
             "  to do: take a vocabulary of the texts' language and letters (task.vocabulary)",
             path, 100 * share));
}

at::Tensor targets_at(const at::Tensor& targets, const std::vector<int64_t>& rows) {
  return targets.index_select(0, at::tensor(rows, at::kLong));
}

std::shared_ptr<TokenSet> joined_files(const TextSets& sets, size_t first) {
  std::vector<Tokens> parts;
  for (size_t i = first; i < sets.files.size(); ++i) parts.push_back(sets.files[i].tokens);
  return std::make_shared<TokenSet>(std::move(parts), sets.pad);
}

// A folder that knows the task's classes by other numbers would call each by another's name.
void check_class_order(const TaskConfig& settings, const std::vector<std::string>& classes) {
  if (settings.model.name != "bert" || settings.model.path.empty() || classes.size() < 2) return;
  if (option(settings.model.options, "new_classifier", false)) return;
  const auto folder = base::find_path(settings.model.path);
  const auto labels = read_bert_labels(folder);
  if (labels == classes || !std::is_permutation(labels.begin(), labels.end(), classes.begin(), classes.end()))
    return;
  throw InputError(
      format("the folder's classes are {}, and the task's {}, in this order",
             base::printable(base::join(labels, ", "), 200), base::printable(base::join(classes, ", "), 200)),
      folder + "/config.json: id2label",
      "set model.options.new_classifier to true to begin a new classifier, or put the "
      "classifier's rows and id2label in the task's order in Python");
}

// Said before the first step: a batch may be far away that has such a text, and a GPU cannot say it at all.
void check_fit(const BertConfig& config, int64_t longest, int64_t largest) {
  if (longest > config.max_position_embeddings)
    throw InputError(format("a text has {} tokens, and the model knows {} places", longest,
                            config.max_position_embeddings),
                     "task.max_length", format("give {} or less", config.max_position_embeddings));
  if (largest >= config.vocab_size)
    throw InputError(format("the texts have the token {}, and the model knows {} (vocab_size)", largest,
                            config.vocab_size),
                     "task.vocabulary, model.path", "take the vocabulary and the model of one folder");
}

// What must be alike on every node: each reads its own file.
std::string identity_of_texts(const TextSets& sets) {
  std::vector<std::string> texts = {sets.vocabulary};
  for (const auto& file : sets.files) {
    texts.push_back(format("{} {} {}", file.tokens.size(), file.tokens.ids.numel(),
                           file.tokens.ids.sum(at::kLong).item<int64_t>()));
    texts.insert(texts.end(), file.names.begin(), file.names.end());
  }
  return base::pack_texts(texts);
}

void add_balance(TaskData& data, const at::Tensor& train, const at::Tensor& eval, bool weighted) {
  if (data.regression) {
    data.notes.insert(data.notes.end(), {range_text("train", train), range_text("eval", eval)});
    return;
  }
  const auto classes = static_cast<int64_t>(data.class_names.size());
  const auto counts = class_counts(train, classes);
  data.notes.push_back(balance_text("train", counts, data.class_names));
  data.notes.push_back(balance_text("eval", class_counts(eval, classes), data.class_names));
  if (weighted) data.class_weights = balanced_weights(counts);
}

// New tensors: what was mapped of a kept file is everybody's.
void scale_targets(TextSets& sets, const LabelScale& scale) {
  for (auto& file : sets.files) file.tokens.targets = scaled(file.tokens.targets, scale);
}

void scale_labels(TaskData& data, TextSets& sets, const at::Tensor& train, const TaskSettings& task) {
  if (!data.regression || !wants_scale(task)) return;
  data.label_scale = scale_of(train);
  scale_targets(sets, *data.label_scale);
}

}  // namespace

TaskData TextTask::data(const TaskConfig& settings, const NodeShare& node) {
  auto sets = read_texts(settings, node, recipe_, Look::all, {});
  const auto& columns = sets.columns;
  regression_ = columns.numbers;
  columns_ = columns.texts;
  columns_.insert(columns_.begin(), columns.label);
  vocabulary_ = sets.vocabulary;
  parts_ = sets.parts;
  TaskData data;
  data.regression = regression_;
  data.label = columns.label;
  data.identity = identity_of_texts(sets);
  data.notes = sets.notes;
  data.input_shape = {3, settings.task.max_length};
  for (size_t i = 0; i < sets.files.size(); ++i)
    data.notes.push_back(token_note(sets.files[i], sets.paths[i], columns, settings.task.max_length));
  for (size_t i = 0; i < sets.files.size(); ++i)
    warn_of_unknown(sets.files[i].tokens, sets.paths[i], sets.unk);
  data.class_names = recipe_(settings, Look::no).class_names;
  if (regression_) {
    data.class_names = {columns.label};
  } else {
    if (data.class_names.empty())
      data.class_names = classes_of(sets.files[0], sets.paths[0], columns, settings.task.classes);
    if (data.class_names.size() < 2 || sets.files[0].names.size() < 2)
      throw InputError("every row has the same label: there is nothing to learn", sets.paths[0],
                       "is task.label the label's column? give rows of two classes or more");
    for (size_t i = 0; i < sets.files.size(); ++i)
      number_classes(sets.files[i], sets.paths[i], data.class_names);
  }
  for (const auto& file : sets.files) {
    longest_ = std::max(longest_, at::diff(file.tokens.starts).max().item<int64_t>());
    largest_ = std::max<int64_t>(largest_, file.tokens.ids.max().item<int32_t>());
  }
  const auto& train = sets.files[0].tokens;
  if (parts_.empty()) {
    const auto split =
        stratified(train.targets, data.class_names.size(), settings.task.eval_fraction, settings.seed);
    if (split.train.empty())
      throw InputError("no row is left to train on", sets.paths[0], "lower task.eval_fraction");
    add_balance(data, targets_at(train.targets, split.train), targets_at(train.targets, split.eval),
                settings.task.weighs_classes());
    scale_labels(data, sets, targets_at(train.targets, split.train), settings.task);
    data.train = std::make_shared<TokenSet>(train, split.train, sets.pad);
    data.eval = std::make_shared<TokenSet>(train, split.eval, sets.pad);
    return data;
  }
  std::vector<at::Tensor> targets;
  for (size_t i = 1; i < sets.files.size(); ++i) targets.push_back(sets.files[i].tokens.targets);
  add_balance(data, train.targets, at::cat(targets), settings.task.weighs_classes());
  scale_labels(data, sets, train.targets, settings.task);
  data.train = std::make_shared<TokenSet>(std::vector<Tokens>{train}, sets.pad);
  data.eval = joined_files(sets, 1);
  return data;
}

// Without a file of its own the set is drawn from the whole file, as data() draws it.
std::shared_ptr<const Dataset> TextTask::evaluation(const TaskConfig& settings, const TaskData& known,
                                                    const NodeShare& node) {
  regression_ = known.regression;
  TextColumns columns{.texts = {columns_.begin() + 1, columns_.end()}, .label = columns_.at(0)};
  auto sets = read_texts(settings, node, recipe_, Look::evaluation, columns);
  check_vocabulary(sets.vocabulary, settings.task.vocabulary);
  parts_ = sets.parts;
  for (size_t i = 0; !regression_ && i < sets.files.size(); ++i)
    number_classes(sets.files[i], sets.paths[i], known.class_names);
  if (known.label_scale) scale_targets(sets, *known.label_scale);
  if (!parts_.empty()) return joined_files(sets, 0);
  const auto& tokens = sets.files[0].tokens;
  const auto split =
      stratified(tokens.targets, known.class_names.size(), settings.task.eval_fraction, settings.seed);
  return std::make_shared<TokenSet>(tokens, split.eval, sets.pad);
}

std::shared_ptr<Net> TextTask::model(const TaskConfig& settings, const TaskData& data) {
  auto net =
      make_model(settings.model, "bert", data.input_shape, static_cast<int64_t>(data.class_names.size()));
  if (!data.regression) check_class_order(settings, data.class_names);
  if (const auto* bert = dynamic_cast<const BertForSequenceClassification*>(net.get()))
    check_fit(bert->config(), longest_, largest_);
  return net;
}

at::Tensor TextTask::loss(const at::Tensor& output, const at::Tensor& target,
                          const LossOptions& options) const {
  return regression_ ? at::mse_loss(output, target, options.reduction) : Task::loss(output, target, options);
}

std::unique_ptr<Metrics> TextTask::metrics(const TaskData& data) const {
  if (data.regression) return std::make_unique<NumberMetrics>(data.label_scale.value_or(LabelScale{}));
  if (parts_.size() < 2) return Task::metrics(data);
  return std::make_unique<PartMetrics>(parts_, data.class_names, data.class_weights);
}

void TextTask::check_vocabulary(const std::string& digest, const std::string& folder) const {
  if (digest == vocabulary_) return;
  throw InputError("the checkpoint was trained with another vocabulary",
                   folder.empty() ? "model.path" : "task.vocabulary: " + folder,
                   "set task.vocabulary to the folder that it was trained with");
}

std::shared_ptr<const Dataset> TextTask::inputs(const TaskConfig& settings, const TaskData&,
                                                const std::string& path) const {
  const auto file = base::find_path(path);
  const auto vocabulary = open_vocabulary(settings);
  check_vocabulary(vocabulary.digest, settings.task.vocabulary);
  TextColumns columns{.texts = {columns_.begin() + 1, columns_.end()}};
  auto layout = data::layout_of(file, settings.task.delimiter.empty() ? ',' : settings.task.delimiter[0]);
  layout.header = settings.task.header;
  if (!data::names_columns(file)) {
    layout = {.kind = data::TextLayout::Kind::lines, .texts_in_line = columns.texts.size()};
    columns.texts = data::open_rows(file, layout)->columns();
  }
  const int64_t threads = std::max<int64_t>(at::get_num_threads(), 1);
  auto made = tokenise(file, layout, columns, vocabulary.tokenizer,
                       {.max_length = settings.task.max_length, .threads = threads});
  warn_of_unknown(made.tokens, file, vocabulary.tokenizer.unk_id());
  return std::make_shared<TokenSet>(std::vector<Tokens>{made.tokens}, vocabulary.tokenizer.pad_id());
}

std::optional<TaskMemory> TextTask::memory() const {
  std::vector<std::string> texts = {vocabulary_};
  texts.insert(texts.end(), columns_.begin(), columns_.end());
  return TaskMemory{{}, texts};
}

void TextTask::recall(const TaskMemory& memory) {
  constexpr size_t kOneText = 3, kTwoTexts = 4;  // with the vocabulary and the label's column
  if (memory.texts.size() != kOneText && memory.texts.size() != kTwoTexts) {
    throw InputError("the checkpoint's columns are not those of texts", "lockstep.task",
                     "set task.name to the task that the checkpoint was trained with");
  }
  vocabulary_ = memory.texts[0];
  columns_ = {memory.texts.begin() + 1, memory.texts.end()};
}

}  // namespace lockstep::tasks
