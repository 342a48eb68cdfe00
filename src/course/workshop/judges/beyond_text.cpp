// Chapter 11, beyond.1: texts of every length.
#include <algorithm>
#include <set>

#include "course/workshop/judge.h"
#include "lockstep/base/format.h"

namespace lockstep::workshop {
namespace {

using Row = std::vector<double>;

constexpr int kListedEpochs = 3;

struct Texts {
  int world;
  std::vector<int> lengths;
  int window, batch;

  int size() const { return static_cast<int>(lengths.size()); }
  int length(int text) const { return lengths[static_cast<size_t>(text)]; }
  int longest() const { return *std::max_element(lengths.begin(), lengths.end()); }
  // text 0 is 1000 1001 ..., text 1 is 2000 2001 ...
  double token(int text, int place) const { return 1000.0 * (text + 1) + place; }
  std::vector<std::string> args() const {
    std::string words;
    for (const int length : lengths) words += format("{} ", length);
    return {words, std::to_string(window), std::to_string(batch)};
  }
};

const std::vector<Texts>& sets_of_texts() {
  static const std::vector<Texts> made = {
      {2, {5, 3, 9, 4, 12, 3, 6, 4, 3, 7, 20, 5, 8, 31, 6, 10, 4, 15, 3, 9, 6, 11, 5, 7}, 8, 3},
      {3, {7, 18, 4, 9, 3, 26, 5, 12, 6, 8, 14, 10, 4, 33, 9, 6, 21, 3, 11, 5, 16}, 8, 2},
      {2, {6, 3, 11, 4, 9, 17, 5}, 100, 2},
  };
  return made;
}

// --- batches

/// A batch as its rank showed it.
struct Batch {
  std::vector<int> chosen;
  int tokens;
  const Row& numbers;
  double at(size_t text, size_t row, int place) const {
    return numbers[(text * 3 + row) * static_cast<size_t>(tokens) + static_cast<size_t>(place)];
  }
};

std::string names_of(const std::vector<int>& chosen) {
  std::string text = chosen.size() == 1 ? "of text" : "of the texts";
  for (const int one : chosen) text += format(" {}", one);
  return text;
}

Batch opened(const Texts& texts, const Row& chosen, const Row& shape, const Row& numbers) {
  if (chosen.empty()) throw NotYet("a batch without a text is shown", "main() shows each: leave it as it is");
  Batch batch{{}, 0, numbers};
  for (const double text : chosen) {
    if (!(text >= 0 && text < texts.size()))
      throw NotYet(format("text {} is taken, and there are {}", shown(text), texts.size()));
    batch.chosen.push_back(static_cast<int>(text));
  }
  const auto count = static_cast<double>(chosen.size());
  if (shape.size() != 3 || shape[0] != count || shape[1] != 3 ||
      shape[2] * count * 3 != double(numbers.size()))
    throw NotYet(format("the batch {} has the shape [{}], and it should be [{}, 3, tokens]",
                        names_of(batch.chosen), shown(shape), shown(count)),
                 "three rows for each text: its tokens, which sentence they are of, the mask");
  batch.tokens = static_cast<int>(shape[2]);
  return batch;
}

void look_at_width(const Texts& texts, const Batch& batch) {
  const int longest_text = *std::max_element(batch.chosen.begin(), batch.chosen.end(),
                                             [&](int a, int b) { return texts.length(a) < texts.length(b); });
  const int longest = texts.length(longest_text);
  if (batch.tokens == longest) return;
  const auto what = format("the batch {} is {} tokens wide", names_of(batch.chosen), batch.tokens);
  if (batch.tokens < longest)
    throw NotYet(format("{}: it loses tokens of text {}, which has {}", what, longest_text, longest),
                 "the width has to do for all that are chosen");
  throw NotYet(format("{}, and the longest of them has {}{}", what, longest,
                      batch.tokens == texts.longest() ? ": that is the longest of all texts" : ""),
               "padding costs as much time as words: which texts come into this batch?");
}

void look_at_tokens(const Texts& texts, const Batch& batch) {
  for (size_t i = 0; i < batch.chosen.size(); ++i) {
    const int text = batch.chosen[i], length = texts.length(text);
    for (int place = 0; place < batch.tokens; ++place) {
      const double wanted = place < length ? texts.token(text, place) : 0;
      if (batch.at(i, 0, place) != wanted)
        throw NotYet(
            format("text {} has {} tokens, and at place {} of the batch {} stands {} where {} is to be", text,
                   length, place, names_of(batch.chosen), shown(batch.at(i, 0, place)), shown(wanted)),
            "first its tokens in order, then padding, 0");
      if (batch.at(i, 1, place) != 0)
        throw NotYet(format("text {}, place {}: the second row has {}, and it is all 0", text, place,
                            shown(batch.at(i, 1, place))),
                     "that row says which sentence it is; the mask is the third");
    }
  }
}

void look_at_mask(const Texts& texts, const Batch& batch) {
  for (size_t i = 0; i < batch.chosen.size(); ++i) {
    const int text = batch.chosen[i], length = texts.length(text);
    for (int place = 0; place < batch.tokens; ++place) {
      const double is = batch.at(i, 2, place), wanted = place < length ? 1 : 0;
      if (is == wanted) continue;
      const auto what =
          format("text {} has {} tokens, in a batch {} wide, and its mask ", text, length, batch.tokens);
      if (is == 1 && batch.at(i, 2, 0) == 1)
        throw NotYet(what + "is 1 over the padding, too: the model would read that as words",
                     "1 where there is a token, 0 behind them");
      if (is == 0 && batch.tokens > length && batch.at(i, 2, batch.tokens - 1) == 1)
        throw NotYet(what + "is 1 where there is none: the other way round", "1 means: to be read");
      throw NotYet(format("{}is {} at place {}, where {} is to be", what, shown(is), place, shown(wanted)));
    }
  }
}

void judge_batches(const Texts& texts, const RankRun& rank) {
  const auto chosen = rank.rows("texts"), shapes = rank.rows("shape"), batches = rank.rows("batch");
  const int share = (texts.size() + texts.batch - 1) / texts.batch;
  if (chosen.empty() || chosen.size() != shapes.size() || chosen.size() != batches.size() ||
      static_cast<int>(chosen.size()) > share)
    throw NotYet(format("rank {} does not show each batch once", rank.rank()),
                 "main() does: leave it as it is");
  for (const auto look : {look_at_width, look_at_tokens, look_at_mask}) {
    for (size_t i = 0; i < chosen.size(); ++i) look(texts, opened(texts, chosen[i], shapes[i], batches[i]));
  }
}

// --- the order of an epoch

/// An epoch's list, and how messages name it.
struct List {
  std::string where;
  std::vector<int> texts;
};

List list_of_epoch(const Texts& texts, const Run& run, int epoch) {
  const auto name = format("epoch {}", epoch);
  const auto& first = run.ranks.front().numbers(name);
  for (const auto& rank : run.ranks) {
    if (rank.numbers(name) != first)
      throw NotYet(
          format("in epoch {} the ranks go through different lists: rank 0's is {}, and rank {}'s {}", epoch,
                 shown(first), rank.rank(), shown(rank.numbers(name))),
          "they take turns along one list: all must draw it from the same numbers");
  }
  List list{format("in epoch {}, with {} texts and windows of {}", epoch, texts.size(), texts.window), {}};
  std::vector<int> often(texts.lengths.size());
  for (const double text : first) {
    if (!(text >= 0 && text < texts.size()))
      throw NotYet(format("{}, the list has text {} in it", list.where, shown(text)));
    list.texts.push_back(static_cast<int>(text));
    ++often[static_cast<size_t>(text)];
  }
  for (size_t text = 0; text < often.size(); ++text) {
    if (often[text] == 0)
      throw NotYet(format("{}, nobody takes text {}", list.where, text), "where is it lost?");
    if (often[text] > 1) throw NotYet(format("{}, text {} is taken {} times", list.where, text, often[text]));
  }
  return list;
}

Row lengths_in(const Texts& texts, const List& list, int begin, int end) {
  Row lengths;
  for (int i = begin; i < end; ++i) lengths.push_back(texts.length(list.texts[static_cast<size_t>(i)]));
  return lengths;
}

bool is_in_order(const Row& lengths) {
  return std::is_sorted(lengths.begin(), lengths.end());
}

void look_at_windows(const Texts& texts, const List& list) {
  const int size = texts.size();
  if (texts.window < size && is_in_order(lengths_in(texts, list, 0, size)))
    throw NotYet(format("{}, the whole list goes from the shortest to the longest: nothing is random in it",
                        list.where),
                 "batch 1 would be the shortest texts in every epoch, and the last one the longest");
  for (int begin = 0; begin < size; begin += texts.window) {
    const int end = std::min(begin + texts.window, size);
    const auto lengths = lengths_in(texts, list, begin, end);
    if (is_in_order(lengths)) continue;
    const auto what = format("{}, the texts at the places {} to {} are not in order of length: {}",
                             list.where, begin, end - 1, shown(lengths));
    if (end - begin < texts.window)
      throw NotYet(what + ": the last window is shorter, and a window as well",
                   "it ends at std::min(begin + window, list.size())");
    if (std::is_sorted(lengths.rbegin(), lengths.rend()))
      throw NotYet(what + ": the longest comes first",
                   "the shortest first: `shorter` says which of two that is");
    throw NotYet(what + (begin > 0 ? ": the windows before are" : ""),
                 "a shuffled list, cut into windows, each in order of length");
  }
}

std::set<std::set<int>> windows_of(const Texts& texts, const List& list) {
  std::set<std::set<int>> windows;
  for (int begin = 0; begin + texts.window <= texts.size(); begin += texts.window)
    windows.emplace(list.texts.begin() + begin, list.texts.begin() + begin + texts.window);
  return windows;
}

void look_at_two_epochs(const Texts& texts, const std::vector<List>& lists, size_t epoch, size_t before) {
  if (lists[epoch].texts == lists[before].texts)
    throw NotYet(format("epoch {} has the list of epoch {} again", epoch, before),
                 "what is the list drawn from?");
  const auto known = windows_of(texts, lists[before]);
  for (const auto& window : windows_of(texts, lists[epoch])) {
    if (known.count(window) == 0) continue;
    throw NotYet(format("the texts {} are together in a window again: in epoch {} as in epoch {}",
                        shown(Row(window.begin(), window.end())), epoch, before),
                 "shuffle first, and cut into windows then: other texts meet in each epoch");
  }
}

void look_at_epochs(const Texts& texts, const std::vector<List>& lists) {
  if (texts.window >= texts.size()) return;
  for (size_t epoch = 1; epoch < lists.size(); ++epoch) {
    for (size_t before = 0; before < epoch; ++before) look_at_two_epochs(texts, lists, epoch, before);
  }
}

// a run that goes on in the middle of an epoch draws its list again
void look_at_another_run(const Run& run, const Run& again) {
  for (int epoch = 0; epoch < kListedEpochs; ++epoch) {
    const auto name = format("epoch {}", epoch);
    const auto &first = run.ranks[0].numbers(name), &second = again.ranks[0].numbers(name);
    if (first != second)
      throw NotYet(format("epoch {} has the list {}, and {} when the program is run again", epoch,
                          shown(first), shown(second)),
                   "a run that goes on needs this list again: draw it from the seed and the epoch alone");
  }
}

LOCKSTEP_JUDGE("beyond.1", attempt) {
  std::vector<Run> runs;
  for (const auto& texts : sets_of_texts()) {
    const auto& run = runs.emplace_back(attempt.run({.world = texts.world, .args = texts.args()}));
    for (const auto& rank : run.ranks) judge_batches(texts, rank);
    std::vector<List> lists;
    for (int epoch = 0; epoch < kListedEpochs; ++epoch) {
      lists.push_back(list_of_epoch(texts, run, epoch));
      look_at_windows(texts, lists.back());
    }
    look_at_epochs(texts, lists);
  }
  const auto& texts = sets_of_texts().front();
  look_at_another_run(runs.front(), attempt.run({.world = texts.world, .args = texts.args()}));
}

}  // namespace
}  // namespace lockstep::workshop
