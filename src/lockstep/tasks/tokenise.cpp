#include "lockstep/tasks/tokenise.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <future>
#include <memory>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/data/rows/fields.h"

namespace lockstep::tasks {
namespace {

/// Some rows' texts, for one thread to encode.
struct Chunk {
  std::string bytes;
  std::vector<size_t> ends;    // of the texts, one or two a row
  std::vector<int64_t> lines;  // of the rows
};

struct Encoded {
  std::vector<int32_t> ids, sizes, seconds;
  int64_t cut = 0;
};

class Encoder {
 public:
  Encoder(const Tokenizer& tokenizer, const TokeniseOptions& options, const TextColumns& columns,
          std::string path)
      : tokenizer_(tokenizer), options_(options), columns_(columns), path_(std::move(path)) {}

  Encoded encode(const Chunk& chunk) const {
    const size_t width = columns_.texts.size();
    const EncodeOptions options{.max_length = static_cast<size_t>(options_.max_length)};
    Encoded made;
    Encoding row;
    for (size_t i = 0; i < chunk.lines.size(); ++i) {
      TextPair text{text_of(chunk, width * i)};
      if (width == 2) text.second = text_of(chunk, width * i + 1);
      try {
        tokenizer_.encode(text, options, row);
      } catch (const InputError& error) {
        throw InputError(error.what(), format("{}:{}: {}", path_, chunk.lines[i], error.where()),
                         error.hint());
      }
      made.ids.insert(made.ids.end(), row.ids.begin(), row.ids.end());
      made.sizes.push_back(static_cast<int32_t>(row.ids.size()));
      made.seconds.push_back(
          static_cast<int32_t>(std::count(row.type_ids.begin(), row.type_ids.end(), uint8_t{0})));
      made.cut += row.ids.size() == options.max_length;
    }
    return made;
  }

 private:
  static std::string_view text_of(const Chunk& chunk, size_t i) {
    const size_t begin = i == 0 ? 0 : chunk.ends[i - 1];
    return std::string_view(chunk.bytes).substr(begin, chunk.ends[i] - begin);
  }

  const Tokenizer& tokenizer_;
  const TokeniseOptions& options_;
  const TextColumns& columns_;
  const std::string path_;
};

/// Encodes several chunks at a time; the results stay in order.
class EncodeQueue {
 public:
  EncodeQueue(const Encoder& encoder, int64_t threads) : encoder_(encoder), threads_(threads) {}

  void put(const std::shared_ptr<const Chunk>& chunk) {
    if (threads_ <= 1) return take(encoder_.encode(*chunk));
    if (static_cast<int64_t>(under_way_.size()) >= 2 * threads_) take_first();
    try {
      under_way_.push_back(std::async(std::launch::async, [this, chunk] { return encoder_.encode(*chunk); }));
    } catch (const std::system_error&) {  // no more threads to be had
      finish();
      take(encoder_.encode(*chunk));
    }
  }
  void finish() {
    while (!under_way_.empty()) take_first();
  }

  std::vector<int32_t> ids, seconds;
  std::vector<int64_t> starts{0};
  int64_t cut = 0;

 private:
  void take_first() {
    auto first = std::move(under_way_.front());
    under_way_.pop_front();
    take(first.get());
  }
  void take(const Encoded& made) {
    ids.insert(ids.end(), made.ids.begin(), made.ids.end());
    seconds.insert(seconds.end(), made.seconds.begin(), made.seconds.end());
    for (const int32_t size : made.sizes) starts.push_back(starts.back() + size);
    cut += made.cut;
  }

  const Encoder& encoder_;
  const int64_t threads_;
  std::deque<std::future<Encoded>> under_way_;
};

/// A label a row, a class or a number.
class Targets {
 public:
  Targets(const TextColumns& columns, const data::TextRows& rows)
      : columns_(columns), rows_(rows), where_([this] { return rows_.where(); }) {}

  /// False where the row is no sample.
  bool take(std::string_view field) {
    if (!columns_.left_out.empty() && data::trimmed(field) == columns_.left_out) return ++left_out, false;
    if (columns_.numbers) {
      numbers_.push_back(data::number_at(field, columns_.label, false, where_));
      return true;
    }
    classes_.push_back(labels.number(field, where_));
    if (first_seen.size() < labels.names().size()) first_seen.push_back(rows_.line());
    return true;
  }
  at::Tensor tensor() const {
    if (columns_.numbers) return at::tensor(numbers_, at::kFloat).view({-1, 1});
    return at::tensor(classes_, at::kLong);
  }

  data::Labels labels;
  std::vector<int64_t> first_seen;
  int64_t left_out = 0;

 private:
  const TextColumns& columns_;
  const data::TextRows& rows_;
  const data::Where where_;
  std::vector<int64_t> classes_;
  std::vector<float> numbers_;
};

template <class Value>
at::Tensor copy_of(const std::vector<Value>& values, at::ScalarType type) {
  auto tensor = at::empty({static_cast<int64_t>(values.size())}, at::TensorOptions(type));
  if (!values.empty()) std::memcpy(tensor.mutable_data_ptr(), values.data(), values.size() * sizeof(Value));
  return tensor;
}

}  // namespace

std::string packed_numbers(const std::vector<int64_t>& numbers) {
  std::vector<std::string> texts;
  for (const auto number : numbers) texts.push_back(std::to_string(number));
  return base::pack_texts(texts);
}

std::vector<int64_t> numbers_in(const std::string& packed) {
  std::vector<int64_t> list;
  for (const auto& number : base::unpack_texts(packed)) list.push_back(std::stoll(number));
  return list;
}

size_t complete(TextColumns& columns, const std::vector<std::string>& in_file, bool named,
                const std::string& path) {
  const auto label = data::find_label(columns.label, in_file, named, columns.texts, path);
  columns.label = data::column_key(in_file, named, label);
  for (const auto& text : columns.texts) {
    if (data::find_column(text, in_file, named, path) == label)
      throw InputError(format("the column {} is the text and the label", base::printable(columns.label)),
                       path, "set task.text and task.label to columns of their own");
  }
  if (!columns.texts.empty()) return label;
  for (size_t i = 0; i < in_file.size(); ++i)
    if (i != label) columns.texts.push_back(in_file[i]);
  if (columns.texts.size() == 1 || columns.texts.size() == 2) return label;
  throw InputError(columns.texts.empty() ? "there is no column but the label"
                                         : format("there are {} columns beside the label: which is the text?",
                                                  columns.texts.size()),
                   path,
                   format("set task.text to the column of the text, or to the two of a pair: the file has {}",
                          base::printable(base::join(in_file, ", "), 200)));
}

Tokenised tokenise(const std::string& path, const data::TextLayout& layout, const TextColumns& columns,
                   const Tokenizer& tokenizer, const TokeniseOptions& options) {
  constexpr size_t kChunk = size_t{256} << 10;  // bytes
  const auto rows = data::open_rows(path, layout);
  auto wanted = columns.texts;
  if (!columns.label.empty()) wanted.push_back(columns.label);
  rows->choose(wanted);
  Targets targets(columns, *rows);
  const Encoder encoder(tokenizer, options, columns, path);
  EncodeQueue queue(encoder, options.threads);
  auto chunk = std::make_shared<Chunk>();
  std::vector<std::string_view> fields;
  while (rows->next(fields)) {
    if (!columns.label.empty() && !targets.take(fields.back())) continue;
    for (size_t i = 0; i < columns.texts.size(); ++i) {
      chunk->bytes += fields[i];
      chunk->ends.push_back(chunk->bytes.size());
    }
    chunk->lines.push_back(rows->line());
    if (chunk->bytes.size() < kChunk) continue;
    queue.put(chunk);
    chunk = std::make_shared<Chunk>();
  }
  if (!chunk->lines.empty()) queue.put(chunk);
  queue.finish();
  if (queue.seconds.empty()) {
    throw InputError(targets.left_out ? format("all {} rows have the label {}, which is left out",
                                               targets.left_out, columns.left_out)
                                      : "the file has no rows of data",
                     path, "give a file with a row a sample");
  }
  return {
      .tokens = {copy_of(queue.ids, at::kInt), copy_of(queue.starts, at::kLong),
                 copy_of(queue.seconds, at::kInt), columns.label.empty() ? at::Tensor() : targets.tensor()},
      .names = targets.labels.names(),
      .first_seen = targets.first_seen,
      .left_out = targets.left_out,
      .cut = queue.cut};
}

SharedSet packed(const Tokenised& made) {
  const auto& tokens = made.tokens;
  return {{tokens.ids, tokens.starts, tokens.seconds, tokens.targets},
          base::pack_texts({base::pack_texts(made.names), packed_numbers(made.first_seen),
                            packed_numbers({made.left_out, made.cut})})};
}

bool is_sound(const SharedSet& set) try {
  const auto& tensors = set.tensors;
  if (tensors.size() != 4 || tensors[0].scalar_type() != at::kInt || tensors[1].scalar_type() != at::kLong ||
      tensors[2].scalar_type() != at::kInt)
    return false;
  const auto made = unpacked(set);
  const auto& [ids, starts, seconds, targets] = made.tokens;
  const int64_t rows = seconds.numel();
  if (rows == 0 || starts.numel() != rows + 1 || (targets.numel() != 0 && targets.numel() != rows))
    return false;
  const auto sizes = at::diff(starts);
  const bool whole = starts[0].item<int64_t>() == 0 && starts[rows].item<int64_t>() == ids.numel();
  const bool inside = starts.ge(0).logical_and(starts.le(ids.numel())).all().item<bool>();
  const bool ordered = whole && inside && sizes.ge(0).all().item<bool>() && ids.ge(0).all().item<bool>();
  if (!ordered || !seconds.ge(0).logical_and(seconds.le(sizes)).all().item<bool>()) return false;
  return targets.is_floating_point() || targets.numel() == 0 ||
         (targets.min().item<int64_t>() >= 0 && targets.max().item<int64_t>() < std::ssize(made.names));
} catch (const std::exception&) {
  return false;
}

Tokenised unpacked(const SharedSet& set) {
  const auto texts = base::unpack_texts(set.text);
  const auto counts = numbers_in(texts.at(2));
  return {.tokens = {set.tensors.at(0), set.tensors.at(1), set.tensors.at(2), set.tensors.at(3)},
          .names = base::unpack_texts(texts.at(0)),
          .first_seen = numbers_in(texts.at(1)),
          .left_out = counts.at(0),
          .cut = counts.at(1)};
}

}  // namespace lockstep::tasks
