// Tasks on texts, one or two a sample, with a class or a number each: MultiNLI, and anyone's files.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "lockstep/data/catalog.h"
#include "lockstep/data/node_share.h"
#include "lockstep/data/rows/fields.h"
#include "lockstep/models/bert.h"
#include "lockstep/options/settings.h"
#include "lockstep/tasks/balance.h"
#include "lockstep/tasks/metrics.h"
#include "lockstep/tasks/packed.h"
#include "lockstep/tasks/task.h"
#include "lockstep/tasks/tokenise.h"

namespace lockstep::tasks {
namespace {

struct TextFile {
  std::string path = {};
  data::TextLayout layout = {};
  std::string part = {};  // its name, if the evaluation set has several
};

struct TextRecipe {
  TextFile train = {};
  std::vector<TextFile> eval = {};  // empty = a part of `train`
  TextColumns columns = {};
  std::vector<std::string> class_names = {};  // if the task knows them
};

struct TextSets {
  struct File {
    std::string path;
    TokenFile made;
  };
  std::vector<File> files = {};  // starts with the training file if that was read
  Parts parts = {};              // of the evaluation set; empty if it has no file of its own
  TextColumns columns = {};      // all are filled in
  std::string vocabulary = {};   // its digest
  int64_t pad = 0, unk = 0;      // the numbers of [PAD] and [UNK]
  std::vector<std::string> notes = {};
};

using TextRecipeMaker = TextRecipe (*)(const TaskConfig& settings, Look look);

namespace fs = std::filesystem;

/// From task.vocabulary's folder, or from model.path's.
struct TaskVocabulary {
  std::string digest;  // of its files
  Tokenizer tokenizer;
};

std::string digest_of(const std::string& text) {
  base::Sha256 sum;
  sum.add(text.data(), text.size());
  return sum.hex();
}

TaskVocabulary open_vocabulary(const TaskConfig& settings) {
  const auto& task = settings.task.vocabulary;
  const fs::path folder = base::find_path(task.empty() ? settings.model.path : task);
  if (folder.empty())
    throw InputError("the texts need a vocabulary", "task.vocabulary",
                     "set it to a folder with BERT's vocab.txt, or model.path to a pretrained model's");
  std::vector<std::string> texts;
  std::error_code none;
  for (const char* name : {"vocab.txt", "tokenizer_config.json", "tokenizer.json"}) {
    if (fs::exists(folder / name, none))
      texts.insert(texts.end(), {name, base::sha256_of_file((folder / name).string())});
  }
  return {digest_of(base::pack_texts(texts)), Tokenizer(folder.string())};  // checkpoints contain the digest
}

// The same key means the same tokens, as long as the file stays in its state.
std::string key_of(const TextFile& file, const TextColumns& columns, const std::string& vocabulary,
                   int64_t max_length) {
  const auto& layout = file.layout;
  const nlohmann::json facts = {
      vocabulary,        max_length,    layout.kind,
      layout.delimiter,  layout.quotes, layout.header,
      layout.short_rows, columns.label, columns.numbers,
      columns.left_out,  columns.texts, fs::absolute(file.path).lexically_normal().string()};
  const auto bytes = nlohmann::json::to_msgpack(facts);
  return digest_of({bytes.begin(), bytes.end()});
}

fs::path cache_folder(const TaskConfig& settings, const std::string& file) {
  if (!settings.task.cache.empty()) return settings.task.cache;
  if (!settings.data.stage.empty()) return settings.data.stage;
  const auto folder = fs::path(file).parent_path();
  return folder.empty() ? "." : folder;
}

bool is_packed(const TextFile& file) {
  return base::lower_case(file.path).ends_with(".safetensors");
}

nlohmann::json packed_keys(const TaskConfig& settings, const TaskVocabulary& vocabulary,
                           const TextColumns& columns) {
  return {{"task.vocabulary", vocabulary.digest},
          {"task.max_length", settings.task.max_length},
          {"task.kind", settings.task.kind},
          {"task.text", columns.texts},
          {"task.label", columns.label}};
}

/// The content of a packed file, which fills in the columns that are empty. InputError if it was packed for
/// other keys.
TokenFile packed_tokens(const TextFile& file, const TaskConfig& settings, const TaskVocabulary& vocabulary,
                        TextColumns& columns, std::vector<std::string>& notes, Arena& arena) {
  return read_tokens(file.path, arena, [&](const TokenFile& made, const nlohmann::json& about) {
    const auto& keys = about.at("keys");
    if (columns.label.empty() || about.at("asked") == columns.label)  // -1, for example
      keys.at("task.label").get_to(columns.label);
    if (columns.texts.empty()) keys.at("task.text").get_to(columns.texts);
    if (notes.empty())
      notes.push_back(base::printable(about.at("label").get<std::string>(), 200));  // of the first file
    const auto wanted = packed_keys(settings, vocabulary, columns);
    for (const auto& [key, now] : wanted.items())
      if (const auto& was = keys.at(key); was != now)
        throw InputError(key == "task.vocabulary"
                             ? "the texts were packed with another vocabulary"
                             : format("{} is {}, but the texts were packed with {}", key, base::as_line(now),
                                      base::printable(base::as_line(was), 200)),
                         "", "");
    if (made.tokens.targets.is_floating_point() != columns.numbers)
      throw InputError("the labels are damaged", "", "");
  });
}

/// The kept tokens of a file, or new ones, which are then kept. Adds a note.
TokenFile tokens_of(const TextFile& file, const TaskConfig& settings, const TaskVocabulary& vocabulary,
                    TextColumns& columns, std::vector<std::string>& notes, Arena& arena) {
  if (is_packed(file)) return packed_tokens(file, settings, vocabulary, columns, notes, arena);
  const auto folder = cache_folder(settings, file.path);
  auto key = key_of(file, columns, vocabulary.digest, settings.task.max_length);
  const auto name = format("{}.{}.tokens", fs::path(file.path).filename().string(), key.substr(0, 12));
  const auto kept = (folder / name).string();
  const auto state = state_of_file(file.path);
  key += " " + state;
  if (auto found = find_kept_tokens(kept, key, file.path)) {
    notes.push_back(format("{}: tokens read from {}", file.path, kept));
    return *std::move(found);
  }
  const int64_t threads = std::max<int64_t>(at::get_num_threads(), settings.data.workers);
  const auto begin = std::chrono::steady_clock::now();
  auto made =
      tokenise(file.path, file.layout, columns, vocabulary.tokenizer, settings.task.max_length, threads);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const auto note =
      format("{}: made {} tokens in {:.1f} s", file.path, made.tokens.ids.numel(), took.count());
  try {
    if (state_of_file(file.path) != state) throw Error("the file changed while it was read", file.path, "");
    std::error_code ignored;
    fs::create_directories(folder, ignored);
    keep_tokens(kept, key, file.path, made);
    notes.push_back(note + ", kept in " + kept);
  } catch (const std::exception& error) {
    const auto* const named = dynamic_cast<const InputError*>(&error);
    notes.push_back(format("{}, cannot be kept for the next run: {}: {} ({})", note, kept, error.what(),
                           named ? named->hint() : "set task.cache to another folder"));
  }
  return made;
}

/// Fills in the columns that are empty, unless packed_tokens() will: find_label() chooses the label, and the
/// others are texts.
TextColumns complete(TextColumns columns, const TextFile& file, bool say_label,
                     std::vector<std::string>& notes) {
  if (is_packed(file)) return columns;
  const auto rows = data::open_rows(file.path, file.layout);
  const auto& names = rows->columns();
  const auto label = data::find_label(columns.label, names, rows->named(), columns.texts, file.path);
  columns.label = data::column_key(names, rows->named(), label);
  if (say_label) notes.push_back(label_text(columns.label, static_cast<int64_t>(label)));
  for (const auto& text : columns.texts) {
    if (data::find_column(text, names, rows->named(), file.path) == label)
      throw InputError(format("the column {} is the text and the label", base::printable(columns.label)),
                       file.path, "set task.text and task.label to different columns");
  }
  if (!columns.texts.empty()) return columns;
  for (size_t i = 0; i < names.size(); ++i)
    if (i != label) columns.texts.push_back(names[i]);
  if (columns.texts.size() == 1 || columns.texts.size() == 2) return columns;
  throw InputError(
      columns.texts.empty()
          ? "the label is the only column"
          : format("there are {} columns besides the label: which is the text?", columns.texts.size()),
      file.path,
      format("set task.text to the column of the text, or to the two of a pair: the file has {}",
             base::printable(base::join(names, ", "), 200)));
}

// tensors: four per file
SharedSet read_on_first_rank(const TaskConfig& settings, const TextRecipe& recipe, Look look,
                             const TextColumns& known, Arena& arena) {
  std::vector<TextFile> files = recipe.eval;
  const bool with_train = look == Look::all || files.empty();
  if (with_train) files.insert(files.begin(), recipe.train);
  const auto vocabulary = open_vocabulary(settings);
  std::vector<std::string> notes;
  auto columns = recipe.columns;
  if (!known.texts.empty()) columns.texts = known.texts, columns.label = known.label;
  columns = complete(columns, files[0], recipe.class_names.empty(), notes);
  SharedSet all;
  auto facts = nlohmann::json::array();
  for (auto& file : files) {
    if (is_packed(file)) file.path = data::stage_file(file.path, settings.data.stage);
    const auto made = tokens_of(file, settings, vocabulary, columns, notes, arena);
    const auto& [ids, starts, seconds, targets] = made.tokens;
    all.tensors.insert(all.tensors.end(), {ids, starts, seconds, targets});
    facts.push_back(facts_of(made));
    facts.back().update({{"path", file.path}, {"part", file.part}});
  }
  nlohmann::json::to_msgpack({{"vocabulary", vocabulary.digest},
                              {"pad", vocabulary.tokenizer.pad_id()},
                              {"unk", vocabulary.tokenizer.unk_id()},
                              {"with_train", with_train},
                              {"label", columns.label},
                              {"texts", columns.texts},
                              {"files", facts},
                              {"notes", notes}},
                             all.text);
  return all;
}

/// Called on every rank; the first rank of a node reads. `known`: the columns from a checkpoint.
TextSets read_texts(const TaskConfig& settings, const NodeShare& node, TextRecipeMaker recipe, Look look,
                    const TextColumns& known) {
  const auto shared = share_on_node(node, [&](Arena& arena) {
    return read_on_first_rank(settings, recipe(settings, look), look, known, arena);
  });
  const auto facts = nlohmann::json::from_msgpack(shared.text);
  TextSets sets{.columns = recipe(settings, Look::no).columns,
                .vocabulary = facts.at("vocabulary"),
                .pad = facts.at("pad"),
                .unk = facts.at("unk"),
                .notes = facts.at("notes")};
  sets.columns.label = facts.at("label");
  facts.at("texts").get_to(sets.columns.texts);
  for (const auto& file : facts.at("files")) {
    const auto* tensor = &shared.tensors.at(4 * sets.files.size());
    sets.files.push_back({file.at("path"), tokenised({tensor[0], tensor[1], tensor[2], tensor[3]}, file)});
    if (sets.files.size() > 1 || !facts.at("with_train"))
      sets.parts.emplace_back(file.at("part"), sets.files.back().made.tokens.size());
  }
  return sets;
}

bool is_integer(const std::string& name) {
  const auto value = data::as_number(name);
  return value && std::trunc(*value) == *value;
}

// The classes of a training file in order, as a table's are. task.classes may have more than the file.
std::vector<std::string> classes_of(const TextSets::File& train, const TextColumns& columns, int64_t wanted) {
  data::Labels labels;
  for (size_t i = 0; i < train.made.names.size(); ++i)
    labels.number(train.made.names[i], [&] { return format("{}:{}", train.path, train.made.first_seen[i]); });
  labels.check_classes(train.made.tokens.size(), columns.label, train.path);
  std::vector<int64_t> places;
  auto names = labels.sorted(places);
  const auto count = static_cast<int64_t>(names.size());
  if (wanted == 0 || count == wanted) return names;
  if (count > wanted || !std::all_of(names.begin(), names.end(), is_integer))
    throw InputError(format("the file has {} classes, but task.classes is {}", count, wanted), train.path,
                     "the classes are " + base::printable(base::join(names, ", "), 200));
  return numbered(wanted);
}

// Changes the class numbers from the file's to the task's.
void number_classes(TextSets::File& file, const std::vector<std::string>& classes) {
  data::Labels labels(0, classes);
  std::vector<int64_t> places;
  for (size_t i = 0; i < file.made.names.size(); ++i)
    places.push_back(labels.number(file.made.names[i],
                                   [&] { return format("{}:{}", file.path, file.made.first_seen[i]); }));
  auto& targets = file.made.tokens.targets;
  targets = at::tensor(places, at::kLong).index_select(0, targets);
}

std::string token_note(const TextSets::File& file, const TextColumns& columns, int64_t most) {
  const auto& made = file.made;
  const auto samples = made.tokens.size();
  auto text = format("{}: {}, {:.1f} tokens on average", file.path,
                     base::counted(static_cast<long long>(samples), "sample"),
                     static_cast<double>(made.tokens.ids.numel()) / static_cast<double>(samples));
  if (made.cut) text += format(", {} of {} or more (task.max_length)", made.cut, most);
  if (made.left_out) text += format("; {} with the label {} left out", made.left_out, columns.left_out);
  return text;
}

// A model cannot learn from [UNK]: the texts may be in another language than the vocabulary.
void warn_of_unknown_tokens(const Tokens& tokens, const std::string& path, int64_t unk) {
  constexpr double kMany = 0.05;
  const auto all = static_cast<double>(std::max<int64_t>(tokens.ids.numel(), 1));
  const auto share = static_cast<double>(tokens.ids.eq(unk).sum().item<int64_t>()) / all;
  if (share < kMany) return;
  log::warning(
      format("{}: {:.0f} % of the tokens are [UNK], which the vocabulary does not know\n  hint: set "
             "task.vocabulary to a vocabulary for the language of the texts",
             path, 100 * share));
}

std::shared_ptr<TokenSet> joined_files(const TextSets& sets, size_t first) {
  std::vector<Tokens> parts;
  for (size_t i = first; i < sets.files.size(); ++i) parts.push_back(sets.files[i].made.tokens);
  return std::make_shared<TokenSet>(std::move(parts), sets.pad);
}

// The folder's classifier would give each class another one's name.
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
      "set model.options.new_classifier to true to train a new classifier, or put the classifier's rows and "
      "id2label in the task's order in Python");
}

// Before the first step: the batch with such a text may come late, and a GPU reports it without a reason.
void check_fit(const BertConfig& config, int64_t longest, int64_t largest) {
  if (longest > config.max_position_embeddings)
    throw InputError(format("a text has {} tokens, but the model has only {} positions", longest,
                            config.max_position_embeddings),
                     "task.max_length", format("give {} or less", config.max_position_embeddings));
  if (largest >= config.vocab_size)
    throw InputError(format("the texts have the token {}, but the model has only {} (vocab_size)", largest,
                            config.vocab_size),
                     "task.vocabulary, model.path", "use the vocabulary and the model from the same folder");
}

// Equal on all nodes, or their files differ. Checkpoints contain it.
std::string identity_of(const TextSets& sets) {
  std::vector<std::string> texts = {sets.vocabulary};
  for (const auto& [path, made] : sets.files) {
    texts.push_back(format("{} {} {}", made.tokens.size(), made.tokens.ids.numel(),
                           made.tokens.ids.sum(at::kLong).item<int64_t>()));
    texts.insert(texts.end(), made.names.begin(), made.names.end());
  }
  return base::pack_texts(texts);
}

// New tensors, since the ranks of a node share the old ones.
void scale_targets(TextSets& sets, const LabelScale& scale) {
  for (auto& file : sets.files) file.made.tokens.targets = scaled(file.made.tokens.targets, scale);
}

TextRecipe text(const TaskConfig& settings, Look);

class TextTask : public Task, public PackableTask {
 public:
  explicit TextTask(TextRecipeMaker recipe) : recipe_(recipe) {}

  /// The first rank of a node tokenizes each file, and keeps the tokens for the next run. The samples kept
  /// for evaluation are drawn from each class, seeded by run.seed, as a table's are.
  TaskData data(const TaskConfig& settings, const NodeShare& node) override {
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
    data.identity = identity_of(sets);
    data.notes = sets.notes;
    data.input_shape = {3, settings.task.max_length};
    for (const auto& file : sets.files) {
      data.notes.push_back(token_note(file, columns, settings.task.max_length));
      warn_of_unknown_tokens(file.made.tokens, file.path, sets.unk);
      longest_ = std::max(longest_, at::diff(file.made.tokens.starts).max().item<int64_t>());
      largest_ = std::max<int64_t>(largest_, file.made.tokens.ids.max().item<int32_t>());
    }
    data.class_names = recipe_(settings, Look::no).class_names;
    const auto& first = sets.files[0];
    if (regression_) {
      data.class_names = {columns.label};
    } else {
      if (data.class_names.empty()) data.class_names = classes_of(first, columns, settings.task.classes);
      if (data.class_names.size() < 2 || first.made.names.size() < 2)
        throw InputError("every row has the same label: there is nothing to learn", first.path,
                         "set task.label to the column of the label, or add rows of another class");
      for (auto& file : sets.files) number_classes(file, data.class_names);
    }
    const auto& train = first.made.tokens;
    StratifiedSplit split;
    std::vector<at::Tensor> eval_targets;
    for (size_t i = 1; i < sets.files.size(); ++i) eval_targets.push_back(sets.files[i].made.tokens.targets);
    auto train_targets = train.targets;
    if (parts_.empty()) {
      split = stratified(train.targets, data.class_names.size(), settings.task.eval_fraction, settings.seed);
      if (split.train.empty())
        throw InputError("no row is left to train on", first.path, "lower task.eval_fraction");
      train_targets = train.targets.index_select(0, at::tensor(split.train, at::kLong));
      eval_targets = {train.targets.index_select(0, at::tensor(split.eval, at::kLong))};
    }
    add_balance(data, train_targets, at::cat(eval_targets), settings.task);
    if (regression_ && wants_scale(settings.task)) {
      data.label_scale = scale_of(train_targets);
      scale_targets(sets, *data.label_scale);
    }
    if (parts_.empty()) {
      data.train = std::make_shared<TokenSet>(train, split.train, sets.pad);
      data.eval = std::make_shared<TokenSet>(train, split.eval, sets.pad);
    } else {
      data.train = std::make_shared<TokenSet>(std::vector<Tokens>{train}, sets.pad);
      data.eval = joined_files(sets, 1);
    }
    return data;
  }

  std::string packed_ending() const override { return recipe_ == text ? ".safetensors" : ""; }

  int64_t pack(const TaskConfig& settings, const std::string& path) override {
    const auto recipe = recipe_(settings, Look::all);
    const auto vocabulary = open_vocabulary(settings);
    std::vector<std::string> notes;
    Arena arena;
    auto columns = complete(recipe.columns, recipe.train, true, notes);
    const auto made = tokens_of(recipe.train, settings, vocabulary, columns, notes, arena);
    write_tokens(path, made,
                 {{"keys", packed_keys(settings, vocabulary, columns)},
                  {"label", notes[0]},
                  {"asked", settings.task.label}},
                 readable_as({recipe.train.path}));
    return made.tokens.size();
  }

  // Without a file of its own, the set is drawn from the whole file, as data() draws it.
  std::shared_ptr<const Dataset> evaluation(const TaskConfig& settings, const TaskData& known,
                                            const NodeShare& node) override {
    regression_ = known.regression;
    TextColumns columns{.texts = {columns_.begin() + 1, columns_.end()}, .label = columns_.at(0)};
    auto sets = read_texts(settings, node, recipe_, Look::evaluation, columns);
    check_vocabulary(sets.vocabulary, settings.task.vocabulary);
    parts_ = sets.parts;
    if (!regression_)
      for (auto& file : sets.files) number_classes(file, known.class_names);
    if (known.label_scale) scale_targets(sets, *known.label_scale);
    if (!parts_.empty()) return joined_files(sets, 0);
    const auto& tokens = sets.files[0].made.tokens;
    const auto split =
        stratified(tokens.targets, known.class_names.size(), settings.task.eval_fraction, settings.seed);
    return std::make_shared<TokenSet>(tokens, split.eval, sets.pad);
  }

  std::shared_ptr<Net> model(const TaskConfig& settings, const TaskData& data) override {
    auto net = Task::model(settings, data);
    if (!data.regression) check_class_order(settings, data.class_names);
    if (const auto* bert = dynamic_cast<const BertForSequenceClassification*>(net.get()))
      check_fit(bert->config(), longest_, largest_);
    return net;
  }

  /// One for each part of the evaluation set. Training uses the first part's.
  std::unique_ptr<Metrics> metrics(const TaskData& data) const override {
    if (parts_.size() < 2 || data.regression) return Task::metrics(data);
    return std::make_unique<PartMetrics>(parts_, data.class_names, data.class_weights);
  }

  /// A CSV, TSV or JSON Lines file with the columns of texts, or any other file with one sample per line and
  /// a tab between the two texts of a pair.
  std::shared_ptr<const Dataset> inputs(const TaskConfig& settings, const TaskData&,
                                        const std::string& path) const override {
    const auto file = base::find_path(path);
    const auto vocabulary = open_vocabulary(settings);
    check_vocabulary(vocabulary.digest, settings.task.vocabulary);
    TextColumns columns{.texts = {columns_.begin() + 1, columns_.end()}};
    auto layout = data::layout_of(file, delimiter_of(settings));
    layout.header = settings.task.header;
    if (!data::names_columns(file)) {
      layout = {.kind = data::TextLayout::Kind::lines, .texts_in_line = columns.texts.size()};
      columns.texts = data::open_rows(file, layout)->columns();
    }
    const auto made = tokenise(file, layout, columns, vocabulary.tokenizer, settings.task.max_length,
                               std::max<int64_t>(at::get_num_threads(), 1));
    warn_of_unknown_tokens(made.tokens, file, vocabulary.tokenizer.unk_id());
    return std::make_shared<TokenSet>(std::vector<Tokens>{made.tokens}, vocabulary.tokenizer.pad_id());
  }

  std::optional<TaskMemory> memory() const override {
    std::vector<std::string> texts = {vocabulary_};
    texts.insert(texts.end(), columns_.begin(), columns_.end());
    return TaskMemory{{}, texts};
  }

  void recall(const TaskMemory& memory) override {
    constexpr size_t kOneText = 3, kTwoTexts = 4;  // with the vocabulary and the label's column
    if (memory.texts.size() != kOneText && memory.texts.size() != kTwoTexts) refuse_memory("texts");
    vocabulary_ = memory.texts[0];
    columns_ = {memory.texts.begin() + 1, memory.texts.end()};
  }

  KnownLoss known_loss() const override {
    return regression_ ? KnownLoss::mean_squared_error : KnownLoss::cross_entropy;
  }

 private:
  void check_vocabulary(const std::string& digest, const std::string& folder) const {
    if (digest == vocabulary_) return;
    throw InputError("the checkpoint was trained with another vocabulary",
                     folder.empty() ? "model.path" : "task.vocabulary: " + folder,
                     "set task.vocabulary to the folder that it was trained with");
  }

  TextRecipeMaker recipe_;
  std::string vocabulary_;            // its digest
  std::vector<std::string> columns_;  // the label, then the texts
  Parts parts_;                       // of the evaluation set
  bool regression_ = false;
  int64_t longest_ = 0, largest_ = 0;  // sample and token, of the files read for training
};

// A file of texts with a class or a number each, described by the keys of `task`.

TextFile file_at(const TaskConfig& settings, const std::string& name) {
  TextFile file{.path = data_path(settings, name), .layout = data::layout_of(name, delimiter_of(settings))};
  file.layout.header = settings.task.header;
  return file;
}

TextRecipe text(const TaskConfig& settings, Look) {
  const auto& task = settings.task;
  if (task.file.empty())
    throw InputError("the text task needs a file", "task.file", "set task: {name: text, file: my.csv}");
  if (task.text.size() > 2)
    throw InputError(format("task.text has {} columns", task.text.size()), "task.text",
                     "name one column, or the two of a pair");
  TextRecipe recipe{.train = file_at(settings, task.file),
                    .columns = {.texts = task.text, .label = task.label, .numbers = task.is_regression()}};
  if (!task.eval_file.empty()) recipe.eval = {file_at(settings, task.eval_file)};
  return recipe;
}

// MultiNLI (Williams, Nangia, Bowman: A Broad-Coverage Challenge Corpus for Sentence Understanding, 2018):
// does the second sentence follow from the first? As its authors ship it, or as GLUE does.

TextFile find(const std::string& root, const std::string& set, const std::string& part = {}) {
  std::vector<std::string> names;
  for (const std::string& name :
       {"multinli_1.0_" + set + ".jsonl", "multinli_1.0_" + set + ".txt", set + ".jsonl", set + ".tsv"})
    names.insert(names.end(), {name, name + ".gz"});
  TextFile file{.path = data::find_data_file(root, names, "mnli"), .part = part};
  file.layout = data::layout_of(file.path, ',');
  file.layout.short_rows = true;  // those of the training set lack the labels of single annotators
  return file;
}

// The classes' order is that of nyu-mll/multi_nli among Hugging Face's data sets.
TextRecipe mnli(const TaskConfig& settings, Look look) {
  TextRecipe recipe{.columns = {.texts = {"sentence1", "sentence2"}, .label = "gold_label", .left_out = "-"},
                    .class_names = {"entailment", "neutral", "contradiction"}};
  if (look == Look::no) return recipe;
  const auto root = base::find_path(settings.data.root.empty() ? "data/mnli" : settings.data.root);
  if (look == Look::all) recipe.train = find(root, "train");
  recipe.eval = {find(root, "dev_matched", "matched"), find(root, "dev_mismatched", "mismatched")};
  return recipe;
}

}  // namespace

LOCKSTEP_TASK(
    text,
    .help =
        "your texts, one or two per sample, in a CSV, TSV or JSONL file: classes, or with "
        "`kind: regression` a number",
    .reads = {"kind", "file", "eval_file", "delimiter", "text", "label", "header", "eval_fraction", "classes",
              "normalize_label", "vocabulary", "max_length", "cache"},
    .defaults = {{"model.name", "bert"}}, .make = [] { return std::make_unique<TextTask>(text); })

LOCKSTEP_TASK(
    mnli,
    .help = "MultiNLI in data.root: pairs of sentences, evaluated on the matched and the mismatched set",
    .reads = {"vocabulary", "max_length", "cache"}, .defaults = {{"model.name", "bert"}},
    .make = [] { return std::make_unique<TextTask>(mnli); })

}  // namespace lockstep::tasks
