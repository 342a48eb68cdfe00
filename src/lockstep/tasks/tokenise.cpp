#include "lockstep/tasks/tokenise.h"

#include <ATen/ATen.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/data/rows/fields.h"
#include "lockstep/tasks/packed.h"

namespace lockstep::tasks {
namespace {

constexpr int kVersion = 1;  // of a file of tokens

/// The texts of some rows, encoded by one thread.
struct Chunk {
  std::string bytes;
  std::vector<size_t> ends;    // of the texts, one or two per row
  std::vector<int64_t> lines;  // of the rows

  std::string_view text(size_t i) const {
    const size_t begin = i == 0 ? 0 : ends[i - 1];
    return std::string_view(bytes).substr(begin, ends[i] - begin);
  }
};

struct EncodedRow {
  std::vector<int32_t> ids, sizes, seconds;
  int64_t cut = 0;
};

EncodedRow encode(const Chunk& chunk, const Tokenizer& tokenizer, size_t max_length,
                  const std::string& path) {
  const size_t rows = chunk.lines.size(), width = chunk.ends.size() / rows;
  EncodedRow made;
  Encoding row;
  for (size_t i = 0; i < rows; ++i) {
    TextPair text{chunk.text(width * i)};
    if (width == 2) text.second = chunk.text(width * i + 1);
    try {
      tokenizer.encode(text, {.max_length = max_length}, row);
    } catch (const InputError& error) {
      throw InputError(error.what(), format("{}:{}: {}", path, chunk.lines[i], error.where()), error.hint());
    }
    made.ids.insert(made.ids.end(), row.ids.begin(), row.ids.end());
    made.sizes.push_back(static_cast<int32_t>(row.ids.size()));
    made.seconds.push_back(
        static_cast<int32_t>(std::count(row.type_ids.begin(), row.type_ids.end(), uint8_t{0})));
    made.cut += row.ids.size() == max_length;
  }
  return made;
}

/// Encodes several chunks at a time. The results stay in order.
class EncodeQueue {
 public:
  EncodeQueue(std::function<EncodedRow(const Chunk&)> encode, int64_t threads)
      : encode_(std::move(encode)), threads_(threads) {}

  void put(Chunk chunk) {
    if (static_cast<int64_t>(pending_.size()) >= 2 * threads_) take_first();
    // encodes in take_first() if the system has no more threads
    const auto policy = threads_ > 1 ? std::launch::async | std::launch::deferred : std::launch::deferred;
    pending_.push_back(std::async(policy, [this, chunk = std::move(chunk)] { return encode_(chunk); }));
  }
  void finish() {
    while (!pending_.empty()) take_first();
  }

  std::vector<int32_t> ids, seconds;
  std::vector<int64_t> starts{0};
  int64_t cut = 0;

 private:
  void take_first() {
    const auto made = pending_.front().get();
    pending_.pop_front();
    ids.insert(ids.end(), made.ids.begin(), made.ids.end());
    seconds.insert(seconds.end(), made.seconds.begin(), made.seconds.end());
    for (const int32_t size : made.sizes) starts.push_back(starts.back() + size);
    cut += made.cut;
  }

  const std::function<EncodedRow(const Chunk&)> encode_;
  const int64_t threads_;
  std::deque<std::future<EncodedRow>> pending_;
};

struct stat stat_of(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0)
    throw InputError(format("cannot read the file of samples: {}", strerror(errno)), path,
                     "check task.file, and the permissions of the file");
  return facts;
}

bool is_trusted(const std::string& path, const std::string& texts) {
  const auto facts = stat_of(path);
  const bool known =
      facts.st_uid == ::geteuid() || facts.st_uid == 0 || facts.st_uid == stat_of(texts).st_uid;
  return known && S_ISREG(facts.st_mode) && (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// A file with correct checksums can still contain anything.
bool is_sound(const TokenFile& made) {
  const auto& [ids, starts, seconds, targets] = made.tokens;
  if (ids.dim() != 1 || starts.dim() != 1 || seconds.dim() != 1) return false;
  if (ids.scalar_type() != at::kInt || starts.scalar_type() != at::kLong || seconds.scalar_type() != at::kInt)
    return false;
  if (reinterpret_cast<uintptr_t>(ids.const_data_ptr()) % sizeof(int32_t) != 0) return false;
  const int64_t rows = seconds.numel();
  const bool classes = targets.scalar_type() == at::kLong && targets.sizes().equals({rows});
  const bool numbers = targets.scalar_type() == at::kFloat && targets.sizes().equals({rows, 1});
  if (rows == 0 || starts.numel() != rows + 1 || !(classes || numbers)) return false;
  if (made.first_seen.size() != made.names.size()) return false;
  const auto sizes = at::diff(starts);
  const bool whole = starts[0].item<int64_t>() == 0 && starts[rows].item<int64_t>() == ids.numel();
  const bool inside = starts.ge(0).logical_and(starts.le(ids.numel())).all().item<bool>();
  const bool ordered = whole && inside && sizes.ge(0).all().item<bool>() && ids.ge(0).all().item<bool>();
  if (!ordered || !seconds.ge(0).logical_and(seconds.le(sizes)).all().item<bool>()) return false;
  return numbers ||
         (targets.min().item<int64_t>() >= 0 && targets.max().item<int64_t>() < std::ssize(made.names));
}

}  // namespace

nlohmann::json facts_of(const TokenFile& made) {
  return {
      {"names", made.names}, {"first_seen", made.first_seen}, {"left_out", made.left_out}, {"cut", made.cut}};
}

TokenFile tokenised(Tokens tokens, const nlohmann::json& facts) {
  return {std::move(tokens), facts.at("names"), facts.at("first_seen"), facts.at("left_out"),
          facts.at("cut")};
}

TokenFile tokenise(const std::string& path, const data::TextLayout& layout, const TextColumns& columns,
                   const Tokenizer& tokenizer, int64_t max_length, int64_t threads) {
  constexpr size_t kChunk = size_t{256} << 10;  // bytes
  const auto rows = data::open_rows(path, layout);
  auto wanted = columns.texts;
  if (!columns.label.empty()) wanted.push_back(columns.label);
  rows->choose(wanted);
  const data::Where where = [&] { return rows->where(); };
  EncodeQueue queue(
      [&](const Chunk& chunk) { return encode(chunk, tokenizer, static_cast<size_t>(max_length), path); },
      threads);
  TokenFile made;
  data::Labels labels;
  std::vector<int64_t> classes;
  std::vector<float> numbers;
  Chunk chunk;
  std::vector<std::string_view> fields;
  while (rows->next(fields)) {
    if (!columns.left_out.empty() && data::trimmed(fields.back()) == columns.left_out) {
      ++made.left_out;
      continue;
    }
    if (columns.numbers) {
      numbers.push_back(data::number_at(fields.back(), columns.label, where));
    } else if (!columns.label.empty()) {
      classes.push_back(labels.number(fields.back(), where));
      if (made.first_seen.size() < labels.names().size()) made.first_seen.push_back(rows->line());
    }
    for (size_t i = 0; i < columns.texts.size(); ++i) {
      chunk.bytes += fields[i];
      chunk.ends.push_back(chunk.bytes.size());
    }
    chunk.lines.push_back(rows->line());
    if (chunk.bytes.size() >= kChunk) queue.put(std::exchange(chunk, {}));
  }
  if (!chunk.lines.empty()) queue.put(std::move(chunk));
  queue.finish();
  if (queue.seconds.empty())
    throw InputError(made.left_out ? format("all {} rows have the label {}, which is left out", made.left_out,
                                            columns.left_out)
                                   : "the file has no rows of data",
                     path, "give a file with one sample per row");
  made.tokens = {at::tensor(queue.ids, at::kInt),
                 at::tensor(queue.starts, at::kLong),
                 at::tensor(queue.seconds, at::kInt),
                 {}};
  if (columns.numbers) made.tokens.targets = at::tensor(numbers, at::kFloat).view({-1, 1});
  if (!classes.empty()) made.tokens.targets = at::tensor(classes, at::kLong);
  made.names = labels.names();
  made.cut = queue.cut;
  return made;
}

std::string state_of_file(const std::string& path) {
  const auto facts = stat_of(path);
  return format("{} {}.{} {}.{} {}", facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec,
                facts.st_ctim.tv_sec, facts.st_ctim.tv_nsec, facts.st_ino);
}

void write_tokens(const std::string& path, const TokenFile& made, nlohmann::json about, mode_t mode) {
  about.update(facts_of(made));
  about["version"] = kVersion;
  std::string text;
  try {
    text = about.dump();
  } catch (const nlohmann::json::exception& error) {
    throw InputError("a name of a column or class is not UTF-8", path, "rename it");
  }
  const auto tree = make_dict();
  put(tree, "starts", made.tokens.starts);  // long numbers first, so that all are aligned
  put(tree, "targets", made.tokens.targets);
  put(tree, "ids", made.tokens.ids);
  put(tree, "seconds", made.tokens.seconds);
  put(tree, "about", at::tensor(std::vector<uint8_t>(text.begin(), text.end()), at::kByte));
  write_safetensors(path, tree, {}, mode);
}

TokenFile read_tokens(const std::string& path, Arena& arena,
                      const std::function<void(const TokenFile& made, const nlohmann::json& about)>& check) {
  constexpr const char* kPackAgain = "make it again: lockstep data pack CONFIG.yaml --out FILE";
  try {
    const checkpoint::MappedFile file(path, "the packed texts", kPackAgain);
    const auto tree = checkpoint::map_safetensors(file);
    const auto tensor = [&](const char* name) {
      return lockstep::find(tree, name).value_or(at::empty(0)).toTensor();
    };
    const auto text = tensor("about");
    const auto about = base::parse_json({static_cast<const char*>(text.const_data_ptr()), text.nbytes()});
    if (about.at("version") != kVersion)
      throw InputError("another version of lockstep wrote the tokens", path, kPackAgain);
    // copies of the small tensors: nobody can change them once they are checked
    auto made = tokenised(
        {tensor("ids"), tensor("starts").clone(), tensor("seconds").clone(), tensor("targets").clone()},
        about);
    if (!is_sound(made)) throw InputError("the tokens do not fit together", path, kPackAgain);
    check(made, about);
    arena.add_file(file.map(), file.number());
    return file.whole(std::move(made));
  } catch (const InputError& error) {
    throw InputError(error.what(), path, kPackAgain);
  } catch (const nlohmann::json::exception& error) {
    throw InputError("the file does not have the tokens of texts", path, kPackAgain);
  }
}

std::optional<TokenFile> find_kept_tokens(const std::string& path, const std::string& key,
                                          const std::string& texts) try {
  if (!is_trusted(path, texts)) return std::nullopt;
  Arena arena;
  auto found = read_tokens(path, arena, [&](const TokenFile&, const nlohmann::json& about) {
    if (about.at("key") != key) throw InputError("the tokens are from other texts", path, "");
  });
  found.tokens.ids = found.tokens.ids.clone();  // the file may be deleted or replaced during the run
  return found;
} catch (const std::exception&) {
  return std::nullopt;  // no file, or a damaged one
}

void keep_tokens(const std::string& path, const std::string& key, const std::string& texts,
                 const TokenFile& made) {
  write_tokens(path, made, {{"key", key}}, readable_as({texts}));
  if (is_trusted(path, texts)) return;
  ::unlink(path.c_str());
  throw Error("other users can write every file there", path, "");
}

}  // namespace lockstep::tasks
