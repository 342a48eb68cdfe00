// Tasks on texts, one or two a sample, with a class or a number each: MultiNLI, and anyone's files.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "lockstep/data/catalog.h"
#include "lockstep/data/node_share.h"
#include "lockstep/data/rows/fields.h"
#include "lockstep/models/bert.h"
#include "lockstep/options/settings.h"
#include "lockstep/tasks/balance.h"
#include "lockstep/tasks/kept_tokens.h"
#include "lockstep/tasks/metrics.h"
#include "lockstep/tasks/task.h"
#include "lockstep/tasks/tokenise.h"

namespace lockstep::tasks {
namespace {

struct TextFile {
  std::string path = {};
  data::TextLayout layout = {};
  std::string name = {};  // of the part of the evaluation set, where there are several
};

struct TextRecipe {
  TextFile train = {};
  std::vector<TextFile> eval = {};  // empty = a part of `train`
  TextColumns columns = {};
  std::vector<std::string> class_names = {};  // where they are known
};

class TextTask : public Task {
 public:
  /// Which files the recipe looks for: on the node's first rank alone.
  enum class Look { no, evaluation, all };
  using Recipe = TextRecipe (*)(const TaskConfig& settings, Look look);
  explicit TextTask(Recipe recipe) : recipe_(recipe) {}
  /// Each file becomes tokens once a node, which are kept for the next run where a folder takes them. The
  /// samples kept for evaluation are drawn class by class, seeded by run.seed, as a table's are.
  TaskData data(const TaskConfig& settings, const NodeShare& node) override;
  std::shared_ptr<const Dataset> evaluation(const TaskConfig& settings, const TaskData& known,
                                            const NodeShare& node) override;
  std::shared_ptr<Net> model(const TaskConfig& settings, const TaskData& data) override;
  /// Of numbers the mean squared error.
  at::Tensor loss(const at::Tensor& output, const at::Tensor& target,
                  const LossOptions& options) const override;
  /// Of each part of the evaluation set where it has several; in training the first one counts.
  std::unique_ptr<Metrics> metrics(const TaskData& data) const override;
  /// A CSV, TSV or JSON Lines file with the texts' columns; any other is a sample a line, the two texts of a
  /// pair with a tab between them.
  std::shared_ptr<const Dataset> inputs(const TaskConfig& settings, const TaskData& data,
                                        const std::string& path) const override;
  std::optional<TaskMemory> memory() const override;
  void recall(const TaskMemory& memory) override;
  KnownLoss known_loss() const override {
    return regression_ ? KnownLoss::mean_squared_error : KnownLoss::cross_entropy;
  }

 private:
  void check_vocabulary(const std::string& digest, const std::string& folder) const;

  Recipe recipe_;
  std::string vocabulary_;            // its digest
  std::vector<std::string> columns_;  // of the texts
  Parts parts_;                       // of the evaluation set
  bool regression_ = false;
  int64_t longest_ = 0, largest_ = 0;  // sample and token, where the files were read for training
};

// A task's files of texts as tokens: read once a node, kept from run to run.

/// What makes the tokens: task.vocabulary's folder, or model.path's.
struct TaskVocabulary {
  std::string folder;
  std::string digest;  // of the files that say how
  Tokenizer tokenizer;
};
TaskVocabulary open_vocabulary(const TaskConfig& settings);

struct TextSets {
  std::vector<Tokenised> files = {};    // the training file first where it is looked for
  std::vector<std::string> paths = {};  // of those
  Parts parts = {};                     // of the evaluation set; empty where it has no file of its own
  TextColumns columns = {};             // none is empty
  std::string vocabulary = {};          // its digest
  int64_t pad = 0, unk = 0;             // the numbers of [PAD] and [UNK]
  std::vector<std::string> notes = {};
};

/// Called on every rank; the node's first one reads. `known`: columns that a checkpoint remembers.
TextSets read_texts(const TaskConfig& settings, const NodeShare& node, TextTask::Recipe recipe,
                    TextTask::Look look, const TextColumns& known);

namespace fs = std::filesystem;

std::string digest_of(const std::string& text) {
  base::Sha256 sum;
  sum.add(text.data(), text.size());
  return sum.hex();
}

std::string digest_of_vocabulary(const fs::path& folder) {
  std::vector<std::string> texts;
  std::error_code none;
  for (const char* name : {"vocab.txt", "tokenizer_config.json", "tokenizer.json"}) {
    if (fs::exists(folder / name, none))
      texts.insert(texts.end(), {name, base::sha256_of_file((folder / name).string())});
  }
  return digest_of(base::pack_texts(texts));
}

std::string folder_of(const TaskConfig& settings) {
  const auto& task = settings.task.vocabulary;
  const auto folder = base::find_path(task.empty() ? settings.model.path : task);
  if (!folder.empty()) return folder;
  throw InputError("the texts need a vocabulary", "task.vocabulary",
                   "set it to a folder with BERT's vocab.txt, or model.path to a pretrained model's");
}

// Whoever reads with the same key gets the same tokens.
std::string key_of(const TextFile& file, const TextColumns& columns, const std::string& vocabulary,
                   int64_t max_length, const fs::path& cache) {
  const auto& layout = file.layout;
  std::vector<std::string> texts = {
      vocabulary,
      format("{} {} {} {} {} {}", max_length, static_cast<int>(layout.kind),
             static_cast<int>(layout.delimiter), layout.quotes, layout.header, layout.short_rows),
      columns.label, columns.numbers ? "number" : "class", columns.left_out};
  texts.insert(texts.end(), columns.texts.begin(), columns.texts.end());
  std::error_code none;
  const auto path = fs::absolute(file.path).lexically_normal();
  if (!fs::equivalent(path.parent_path(), cache, none)) texts.push_back(path.string());
  return digest_of(base::pack_texts(texts));
}

fs::path cache_folder(const TaskConfig& settings, const std::string& file) {
  if (!settings.task.cache.empty()) return settings.task.cache;
  if (!settings.data.stage.empty()) return settings.data.stage;
  const auto folder = fs::path(file).parent_path();
  return folder.empty() ? "." : folder;
}

/// On the node's first rank: one file's tokens, read from the kept file or made and kept. Adds a note.
Tokenised tokens_of(const TextFile& file, const TaskConfig& settings, const TaskVocabulary& vocabulary,
                    const TextColumns& columns, std::vector<std::string>& notes) {
  const auto folder = cache_folder(settings, file.path);
  const auto key = key_of(file, columns, vocabulary.digest, settings.task.max_length, folder);
  const auto name = format("{}.{}.tokens", fs::path(file.path).filename().string(), key.substr(0, 12));
  const auto kept = (folder / name).string();
  const OriginalFile origin(file.path);
  if (auto found = find_kept_tokens(kept, key, origin)) {
    notes.push_back(format("{}: tokens read from {}", file.path, kept));
    return *std::move(found);
  }
  const int64_t threads = std::max<int64_t>(at::get_num_threads(), settings.data.workers);
  const auto begin = std::chrono::steady_clock::now();
  auto made = tokenise(file.path, file.layout, columns, vocabulary.tokenizer,
                       {.max_length = settings.task.max_length, .threads = threads});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const auto note =
      format("{}: made {} tokens in {:.1f} s", file.path, made.tokens.ids.numel(), took.count());
  try {
    std::error_code ignored;
    fs::create_directories(folder, ignored);
    keep_tokens(kept, key, origin, made);
    notes.push_back(note + ", kept in " + kept);
  } catch (const Error& error) {
    notes.push_back(format("{}, not kept for the next run: {}: {} (task.cache names another folder)", note,
                           kept, error.what()));
  }
  return made;
}

// A note says which column is the label, where the recipe leaves it to the config.
TextColumns columns_for(const TextRecipe& recipe, const TextFile& first, const TextColumns& known,
                        std::vector<std::string>& notes) {
  auto columns = recipe.columns;
  if (!known.texts.empty()) {
    columns.texts = known.texts;
    columns.label = known.label;
  }
  const auto rows = data::open_rows(first.path, first.layout);
  const auto place = complete(columns, rows->columns(), rows->named(), first.path);
  if (recipe.class_names.empty()) notes.push_back(label_text(columns.label, place));
  return columns;
}

// texts: digest, [PAD] and [UNK], whether the first file is the training set, label, columns, then three a
// file: its path, what is known of it, its part's name; then the notes. tensors: four a file.
SharedSet read_all(const TaskConfig& settings, TextTask::Recipe recipe_of, TextTask::Look look,
                   const TextColumns& known) {
  const auto recipe = recipe_of(settings, look);
  std::vector<TextFile> files;
  const bool with_train = look == TextTask::Look::all || recipe.eval.empty();
  if (with_train) files.push_back(recipe.train);
  files.insert(files.end(), recipe.eval.begin(), recipe.eval.end());
  const auto vocabulary = open_vocabulary(settings);
  std::vector<std::string> texts, notes;
  const auto columns = columns_for(recipe, files[0], known, notes);
  SharedSet all;
  for (const auto& file : files) {
    const auto set = packed(tokens_of(file, settings, vocabulary, columns, notes));
    texts.insert(texts.end(), {file.path, set.text, file.name});
    all.tensors.insert(all.tensors.end(), set.tensors.begin(), set.tensors.end());
  }
  all.text = base::pack_texts({vocabulary.digest,
                               packed_numbers({vocabulary.tokenizer.pad_id(), vocabulary.tokenizer.unk_id()}),
                               with_train ? "train" : "", columns.label, base::pack_texts(columns.texts),
                               base::pack_texts(texts), base::pack_texts(notes)});
  return all;
}

TaskVocabulary open_vocabulary(const TaskConfig& settings) {
  const auto folder = folder_of(settings);
  return {folder, digest_of_vocabulary(folder), Tokenizer(folder)};
}

TextSets read_texts(const TaskConfig& settings, const NodeShare& node, TextTask::Recipe recipe,
                    TextTask::Look look, const TextColumns& known) {
  const auto shared = share_on_node(node, [&](Arena&) { return read_all(settings, recipe, look, known); });
  const auto all = base::unpack_texts(shared.text);
  TextSets sets{.columns = recipe(settings, TextTask::Look::no).columns,
                .vocabulary = all.at(0),
                .pad = numbers_in(all.at(1)).at(0),
                .unk = numbers_in(all.at(1)).at(1),
                .notes = base::unpack_texts(all.at(6))};
  const bool with_train = !all.at(2).empty();
  sets.columns.label = all.at(3);
  sets.columns.texts = base::unpack_texts(all.at(4));
  const auto texts = base::unpack_texts(all.at(5));
  for (size_t i = 0; 3 * i < texts.size(); ++i) {
    const auto first = shared.tensors.begin() + static_cast<ptrdiff_t>(4 * i);
    sets.files.push_back(unpacked({{first, first + 4}, texts.at(3 * i + 1)}));
    sets.paths.push_back(texts[3 * i]);
    if (i > 0 || !with_train) sets.parts.emplace_back(texts.at(3 * i + 2), sets.files.back().tokens.size());
  }
  return sets;
}

// Anyone's file of texts with a class or a number each, described by the keys of `task`.

TextFile file_at(const TaskConfig& settings, const std::string& name) {
  const auto& root = settings.data.root;
  TextFile file{.path = base::find_path(root.empty() || name.starts_with('/') ? name : root + "/" + name)};
  file.layout = data::layout_of(name, settings.task.delimiter.empty() ? ',' : settings.task.delimiter[0]);
  file.layout.header = settings.task.header;
  return file;
}

TextRecipe text(const TaskConfig& settings, TextTask::Look) {
  const auto& task = settings.task;
  if (task.file.empty())
    throw InputError("the text task needs a file", "task.file", "task: {name: text, file: my.csv}");
  if (task.text.size() > 2)
    throw InputError(format("{} columns of texts cannot be read together", task.text.size()), "task.text",
                     "name one, or the two of a pair");
  TextRecipe recipe{.train = file_at(settings, task.file),
                    .columns = {.texts = task.text, .label = task.label, .numbers = task.is_regression()}};
  if (!task.eval_file.empty()) recipe.eval = {file_at(settings, task.eval_file)};
  return recipe;
}

}  // namespace

LOCKSTEP_TASK(
    text,
    .help =
        "your texts, one or two a sample, in a CSV, TSV or JSONL file: classes, or with "
        "`kind: regression` a number",
    .reads = {"kind", "file", "eval_file", "delimiter", "text", "label", "header", "eval_fraction", "classes",
              "normalize_label", "vocabulary", "max_length", "cache"},
    .defaults = {{"model.name", "bert"}}, .make = [] { return std::make_unique<TextTask>(text); })

// MultiNLI (Williams, Nangia, Bowman: A Broad-Coverage Challenge Corpus for Sentence Understanding, 2018):
// does the second sentence follow from the first? As its authors ship it, or as GLUE does.

namespace {

TextFile find(const std::string& root, const std::string& set, const std::string& part = {}) {
  std::vector<std::string> names;
  for (const std::string& name :
       {"multinli_1.0_" + set + ".jsonl", "multinli_1.0_" + set + ".txt", set + ".jsonl", set + ".tsv"})
    names.insert(names.end(), {name, name + ".gz"});
  TextFile file{.path = data::find_data_file(root, names), .name = part};
  file.layout = data::layout_of(file.path, ',');
  file.layout.short_rows = true;  // those of the training set lack the labels of single annotators
  return file;
}

// The classes' order is that of nyu-mll/multi_nli among Hugging Face's data sets.
TextRecipe mnli(const TaskConfig& settings, TextTask::Look look) {
  TextRecipe recipe{.columns = {.texts = {"sentence1", "sentence2"}, .label = "gold_label", .left_out = "-"},
                    .class_names = {"entailment", "neutral", "contradiction"}};
  if (look == TextTask::Look::no) return recipe;
  const auto root = base::find_path(settings.data.root.empty() ? "data/mnli" : settings.data.root);
  if (look == TextTask::Look::all) recipe.train = find(root, "train");
  recipe.eval = {find(root, "dev_matched", "matched"), find(root, "dev_mismatched", "mismatched")};
  return recipe;
}

}  // namespace

LOCKSTEP_TASK(
    mnli,
    .help = "MultiNLI in data.root: pairs of sentences, evaluated on the matched and the mismatched set",
    .reads = {"vocabulary", "max_length", "cache"}, .defaults = {{"model.name", "bert"}},
    .make = [] { return std::make_unique<TextTask>(mnli); })

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

// New tensors: the old ones are shared by the ranks of the node.
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
