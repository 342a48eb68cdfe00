// Chapter 11, beyond.1: texts of every length.
#include <algorithm>
#include <set>

#include "course/workshop/judge.h"
#include "lockstep/base/format.h"

namespace lockstep::workshop {
namespace {

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
  expect(!chosen.empty(), "a batch without a text is shown", {}, "main() shows each: leave it as it is");
  Batch batch{{}, 0, numbers};
  for (const double text : chosen) {
    expect(text >= 0 && text < texts.size(),
           format("text {} is taken, and there are {}", shown(text), texts.size()));
    batch.chosen.push_back(static_cast<int>(text));
  }
  const auto count = static_cast<double>(chosen.size());
  expect(shape.size() == 3 && shape[0] == count && shape[1] == 3 &&
             shape[2] * count * 3 == static_cast<double>(numbers.size()),
         format("the batch {} has the shape [{}], and it should be [{}, 3, tokens]", names_of(batch.chosen),
                shown(shape), shown(count)),
         {}, "three rows for each text: its tokens, which sentence they are of, the mask");
  batch.tokens = static_cast<int>(shape[2]);
  return batch;
}

void judge_width(const Texts& texts, const Batch& batch) {
  const int longest_text = *std::max_element(batch.chosen.begin(), batch.chosen.end(),
                                             [&](int a, int b) { return texts.length(a) < texts.length(b); });
  const int longest = texts.length(longest_text);
  expect(batch.tokens == longest,
         format("the batch {} is {} tokens wide, and the longest of them has {}", names_of(batch.chosen),
                batch.tokens, longest),
         {{batch.tokens < longest, format("it loses tokens of text {}", longest_text),
           "the width has to do for all that are chosen"},
          {batch.tokens == texts.longest(), "that is the longest of all texts",
           "padding costs as much time as words: which texts come into this batch?"}},
         "padding costs as much time as words: which texts come into this batch?");
}

void judge_tokens(const Texts& texts, const Batch& batch) {
  for (size_t i = 0; i < batch.chosen.size(); ++i) {
    const int text = batch.chosen[i], length = texts.length(text);
    for (int place = 0; place < batch.tokens; ++place) {
      const double wanted = place < length ? texts.token(text, place) : 0;
      expect(batch.at(i, 0, place) == wanted,
             format("text {} has {} tokens, and at place {} of the batch {} stands {} where {} is to be",
                    text, length, place, names_of(batch.chosen), shown(batch.at(i, 0, place)), shown(wanted)),
             {}, "first its tokens in order, then padding, 0");
      expect(batch.at(i, 1, place) == 0,
             format("text {}, place {}: the second row has {}, and it is all 0", text, place,
                    shown(batch.at(i, 1, place))),
             {}, "that row says which sentence it is; the mask is the third");
    }
  }
}

void judge_mask(const Texts& texts, const Batch& batch) {
  for (size_t i = 0; i < batch.chosen.size(); ++i) {
    const int text = batch.chosen[i], length = texts.length(text);
    for (int place = 0; place < batch.tokens; ++place) {
      const double is = batch.at(i, 2, place), wanted = place < length ? 1 : 0;
      expect(
          is == wanted,
          format(
              "text {} has {} tokens, in a batch {} wide, and its mask is {} at place {}, where {} is to be",
              text, length, batch.tokens, shown(is), place, wanted),
          {{is == 1 && batch.at(i, 2, 0) == 1,
            "it is 1 over the padding, too: the model would read that as words",
            "1 where there is a token, 0 behind them"},
           {is == 0 && batch.tokens > length && batch.at(i, 2, batch.tokens - 1) == 1,
            "it is 1 where there is none: the other way round", "1 means: to be read"}});
    }
  }
}

void judge_batches(const Texts& texts, const RankRun& rank) {
  const auto chosen = rank.rows("texts"), shapes = rank.rows("shape"), batches = rank.rows("batch");
  const int share = (texts.size() + texts.batch - 1) / texts.batch;
  expect(!chosen.empty() && chosen.size() == shapes.size() && chosen.size() == batches.size() &&
             std::ssize(chosen) <= share,
         format("rank {} does not show each batch once", rank.rank()), {}, "main() does: leave it as it is");
  for (const auto judge : {judge_width, judge_tokens, judge_mask}) {
    for (size_t i = 0; i < chosen.size(); ++i) judge(texts, opened(texts, chosen[i], shapes[i], batches[i]));
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
  for (const auto& rank : run.ranks)
    expect(rank.numbers(name) == first,
           format("in epoch {} the ranks go through different lists: rank 0's is {}, and rank {}'s {}", epoch,
                  shown(first), rank.rank(), shown(rank.numbers(name))),
           {}, "they take turns along one list: all must draw it from the same numbers");
  List list{format("in epoch {}, with {} texts and windows of {}", epoch, texts.size(), texts.window), {}};
  for (const double text : first) {
    expect(text >= 0 && text < texts.size(),
           format("{}, the list has text {} in it", list.where, shown(text)));
    list.texts.push_back(static_cast<int>(text));
  }
  for (int text = 0; text < texts.size(); ++text) {
    const auto often = std::count(list.texts.begin(), list.texts.end(), text);
    expect(often > 0, format("{}, nobody takes text {}", list.where, text), {}, "where is it lost?");
    expect(often == 1, format("{}, text {} is taken {} times", list.where, text, often));
  }
  return list;
}

Row lengths_in(const Texts& texts, const List& list, int begin, int end) {
  Row lengths;
  for (int i = begin; i < end; ++i) lengths.push_back(texts.length(list.texts[static_cast<size_t>(i)]));
  return lengths;
}

void judge_windows(const Texts& texts, const List& list) {
  const int size = texts.size();
  const auto all = lengths_in(texts, list, 0, size);
  expect(texts.window >= size || !std::is_sorted(all.begin(), all.end()),
         list.where + ", the whole list goes from the shortest to the longest: nothing is random in it", {},
         "batch 1 would be the shortest texts in every epoch, and the last one the longest");
  for (int begin = 0; begin < size; begin += texts.window) {
    const int end = std::min(begin + texts.window, size);
    const auto lengths = lengths_in(texts, list, begin, end);
    expect(
        std::is_sorted(lengths.begin(), lengths.end()),
        format("{}, the texts at the places {} to {} are not in order of length: {}", list.where, begin,
               end - 1, shown(lengths)),
        {{end - begin < texts.window, "the last window is shorter, and a window as well",
          "it ends at std::min(begin + window, list.size())"},
         {std::is_sorted(lengths.rbegin(), lengths.rend()), "the longest comes first",
          "the shortest first: `shorter` says which of two that is"},
         {begin > 0, "the windows before are", "a shuffled list, cut into windows, each in order of length"}},
        "a shuffled list, cut into windows, each in order of length");
  }
}

std::set<std::set<int>> windows_of(const Texts& texts, const List& list) {
  std::set<std::set<int>> windows;
  for (int begin = 0; begin + texts.window <= texts.size(); begin += texts.window)
    windows.emplace(list.texts.begin() + begin, list.texts.begin() + begin + texts.window);
  return windows;
}

void judge_two_epochs(const Texts& texts, const std::vector<List>& lists, size_t epoch, size_t before) {
  expect(lists[epoch].texts != lists[before].texts,
         format("epoch {} has the list of epoch {} again", epoch, before), {},
         "what is the list drawn from?");
  const auto known = windows_of(texts, lists[before]);
  for (const auto& window : windows_of(texts, lists[epoch]))
    expect(!known.contains(window),
           format("the texts {} are together in a window again: in epoch {} as in epoch {}",
                  shown(Row(window.begin(), window.end())), epoch, before),
           {}, "shuffle first, and cut into windows then: other texts meet in each epoch");
}

LOCKSTEP_JUDGE("beyond.1", attempt) {
  std::vector<Run> runs;
  for (const auto& texts : sets_of_texts()) {
    const auto& run = runs.emplace_back(attempt.run({.world = texts.world, .args = texts.args()}));
    for (const auto& rank : run.ranks) judge_batches(texts, rank);
    std::vector<List> lists;
    for (int epoch = 0; epoch < kListedEpochs; ++epoch) {
      lists.push_back(list_of_epoch(texts, run, epoch));
      judge_windows(texts, lists.back());
    }
    for (size_t epoch = 1; epoch < lists.size() && texts.window < texts.size(); ++epoch)
      for (size_t before = 0; before < epoch; ++before) judge_two_epochs(texts, lists, epoch, before);
  }
  // a run that goes on in the middle of an epoch draws its list again
  const auto& texts = sets_of_texts().front();
  const auto again = attempt.run({.world = texts.world, .args = texts.args()});
  for (int epoch = 0; epoch < kListedEpochs; ++epoch) {
    const auto name = format("epoch {}", epoch);
    const auto &first = runs[0].ranks[0].numbers(name), &second = again.ranks[0].numbers(name);
    expect(first == second,
           format("epoch {} has the list {}, and {} when the program is run again", epoch, shown(first),
                  shown(second)),
           {}, "a run that goes on needs this list again: draw it from the seed and the epoch alone");
  }
}

}  // namespace
}  // namespace lockstep::workshop
