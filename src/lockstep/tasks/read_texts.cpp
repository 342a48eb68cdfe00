#include "lockstep/tasks/read_texts.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/data/kept_set.h"
#include "lockstep/tasks/balance.h"

namespace lockstep::tasks {
namespace {
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

/// On the node's first rank: one file's tokens, in a kept file where there can be one.
class Reader {
 public:
  Reader(const TaskConfig& settings, const TaskVocabulary& vocabulary, const TextColumns& columns)
      : settings_(settings), vocabulary_(vocabulary), columns_(columns) {}

  struct Read {
    std::string kept;  // the file; empty = `made` holds it all
    SharedSet made;
    std::string note;
  };
  Read read(const TextFile& file) const {
    const auto folder = cache_folder(settings_, file.path);
    const auto key = key_of(file, columns_, vocabulary_.digest, settings_.task.max_length, folder);
    const auto kept =
        (folder / format("{}.{}.tokens", fs::path(file.path).filename().string(), key.substr(0, 12)))
            .string();
    const data::OriginalFile origin(file.path);
    if (const auto set = data::find_kept(kept, key, origin); set && is_sound(*set))
      return {kept, {}, format("{}: tokens read from {}", file.path, kept)};
    return make(file, key, kept, origin);
  }

 private:
  Read make(const TextFile& file, const std::string& key, const std::string& kept,
            const data::OriginalFile& origin) const {
    const int64_t threads = std::max<int64_t>(at::get_num_threads(), settings_.data.workers);
    const auto begin = std::chrono::steady_clock::now();
    auto set = packed(tokenise(file.path, file.layout, columns_, vocabulary_.tokenizer,
                               {.max_length = settings_.task.max_length, .threads = threads}));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const auto note =
        format("{}: made {} tokens in {:.1f} s", file.path, set.tensors[0].numel(), took.count());
    try {
      std::error_code ignored;
      fs::create_directories(fs::path(kept).parent_path(), ignored);
      data::keep_set(kept, key, origin, set);
      data::map_kept(kept, origin);  // throws where all files of the folder are everybody's to write
      return {kept, {}, note + ", kept in " + kept};
    } catch (const Error& error) {
      return {{},
              std::move(set),
              format("{}, not kept for the next run: {}: {} (task.cache names another folder)", note, kept,
                     error.what())};
    }
  }

  const TaskConfig& settings_;
  const TaskVocabulary& vocabulary_;
  const TextColumns& columns_;
};

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

// texts: digest, [PAD] and [UNK], whether the first file is the training set, label, columns, then four a
// file: its path, its kept file, what is known of it, its part's name; then the notes. tensors: four a file
// that is not kept.
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
  const Reader reader(settings, vocabulary, columns);
  SharedSet all;
  for (const auto& file : files) {
    auto read = reader.read(file);
    texts.insert(texts.end(), {file.path, read.kept, read.made.text, file.name});
    notes.push_back(read.note);
    all.tensors.insert(all.tensors.end(), read.made.tensors.begin(), read.made.tensors.end());
  }
  all.text = base::pack_texts({vocabulary.digest,
                               packed_numbers({vocabulary.tokenizer.pad_id(), vocabulary.tokenizer.unk_id()}),
                               with_train ? "train" : "", columns.label, base::pack_texts(columns.texts),
                               base::pack_texts(texts), base::pack_texts(notes)});
  return all;
}

}  // namespace

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
  size_t tensor = 0;
  for (size_t i = 0; i + 3 < texts.size(); i += 4) {
    SharedSet set;
    if (!texts[i + 1].empty()) {
      set = data::map_kept(texts[i + 1], data::OriginalFile(texts[i]));
    } else {
      set = {{shared.tensors.begin() + static_cast<ptrdiff_t>(tensor),
              shared.tensors.begin() + static_cast<ptrdiff_t>(tensor + 4)},
             texts[i + 2]};
      tensor += 4;
    }
    sets.files.push_back(unpacked(set));
    sets.paths.push_back(texts[i]);
    if (i > 0 || !with_train) sets.parts.emplace_back(texts[i + 3], sets.files.back().tokens.size());
  }
  return sets;
}

}  // namespace lockstep::tasks
