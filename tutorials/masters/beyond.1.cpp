//@ title      Texts of every length
//@ hint       A batch is as wide as its own longest text: which texts does the first loop look at?
//@ hint       row.slice(0, a, b) selects the indices a to b - 1 of a row: those with a token, or those without?
//@ hint       For the windows, go through the list in steps of `window`, and std::sort each piece from begin to end by `shorter`.
//@ hint       A piece ends at std::min(begin + window, list.size()): the last one may be shorter.
#include <lockstep/workshop.h>

#include <random>

// Texts have different lengths, but a tensor has one width. Padding fills the rest. The model must ignore it, and it
// takes as much time as real tokens.

using Text = std::vector<int64_t>;  // token ids
using List = std::vector<int64_t>;  // indices of texts

constexpr int64_t kPadding = 0;
constexpr uint64_t kSeed = 7;

// The selected texts as one tensor, int64 [texts, 3, tokens], with three rows for each text:
//
//   the tokens             101 2009 102   0   0     padded to the length of the longest selected text
//   which sentence it is     0    0   0   0   0     all 0 here: one sentence per text
//   the mask                 1    1   1   0   0     1 for a token, 0 for padding
torch::Tensor batch_of(const std::vector<Text>& texts, const List& chosen) {
  size_t tokens = 0;
  //@ todo
  // TODO: this is wider than the selected texts need
  for (const auto& text : texts) tokens = std::max(tokens, text.size());
  //@ solution
  for (const int64_t one : chosen) tokens = std::max(tokens, texts.at(one).size());
  //@ wrong all
  for (const auto& text : texts) tokens = std::max(tokens, text.size());
  //@ wrong first
  tokens = texts.at(chosen.front()).size();
  //@ wrong one_more
  for (const int64_t one : chosen) tokens = std::max(tokens, texts.at(one).size() + 1);
  //@ end
  auto batch = torch::full({int64_t(chosen.size()), 3, int64_t(tokens)}, kPadding, torch::kLong);
  for (size_t i = 0; i < chosen.size(); ++i) {
    const auto& text = texts.at(chosen[i]);
    for (size_t j = 0; j < std::min(text.size(), tokens); ++j) batch[i][0][j] = text[j];
    //@ todo
    // TODO: this marks the padding as tokens, too
    batch[i][2].fill_(1);
    //@ solution
    batch[i][2].slice(0, 0, text.size()).fill_(1);
    //@ wrong ones
    batch[i][2].fill_(1);
    //@ wrong inverted
    batch[i][2].slice(0, text.size(), tokens).fill_(1);
    //@ wrong rows
    batch[i][1].slice(0, 0, text.size()).fill_(1);
    //@ end
  }
  return batch;
}

// 0 to size - 1 in a random order, which depends only on the two arguments.
List shuffled(size_t size, uint64_t seed) {
  List list(size);
  std::iota(list.begin(), list.end(), 0);
  std::mt19937_64 random(seed);
  std::shuffle(list.begin(), list.end(), random);
  return list;
}

// The order of an epoch, from which all ranks take turns, as in chapter 5. It differs in each epoch. It is divided into
// windows of `window` places, and the texts in each window are sorted by length, shortest first. So texts in a batch
// have similar lengths, but the order is still random.
List order_of(const std::vector<Text>& texts, size_t window, uint64_t epoch, const lockstep::Session& session) {
  const auto shorter = [&](int64_t a, int64_t b) { return texts.at(a).size() < texts.at(b).size(); };
  //@ todo
  // TODO: this is shuffled, but is it the same list on all ranks?
  auto list = shuffled(texts.size(), kSeed + epoch + session.rank());
  //@ solution
  (void)session;
  auto list = shuffled(texts.size(), kSeed + epoch);
  //@ wrong rank: the ranks use different lists
  auto list = shuffled(texts.size(), kSeed + epoch + session.rank());
  //@ wrong chance: when the program runs again
  const auto drawn = session.team().broadcast(std::to_string(std::random_device()()));
  auto list = shuffled(texts.size(), kSeed + epoch + std::stoull(drawn));
  //@ wrong two_lists
  (void)session;
  auto list = shuffled(texts.size(), kSeed + std::min<uint64_t>(epoch, 1));
  //@ wrong epoch
  (void)session, (void)epoch;
  auto list = shuffled(texts.size(), kSeed);
  //@ end
  //@ todo
  // TODO: sort the windows
  (void)window, (void)shorter;
  //@ solution
  for (size_t begin = 0; begin < list.size(); begin += window)
    std::sort(list.data() + begin, list.data() + std::min(begin + window, list.size()), shorter);
  //@ wrong unsorted: are not sorted by length
  (void)window, (void)shorter;
  //@ wrong whole: from the shortest to the longest
  (void)window;
  std::sort(list.begin(), list.end(), shorter);
  //@ wrong first_window
  std::sort(list.data(), list.data() + std::min(window, list.size()), shorter);
  //@ wrong longest_first
  for (size_t begin = 0; begin < list.size(); begin += window)
    std::sort(list.data() + begin, list.data() + std::min(begin + window, list.size()),
              [&](int64_t a, int64_t b) { return shorter(b, a); });
  //@ wrong last
  for (size_t begin = 0; begin + window <= list.size(); begin += window)
    std::sort(list.data() + begin, list.data() + begin + window, shorter);
  //@ wrong dropped
  list.resize(list.size() / window * window);
  for (size_t begin = 0; begin < list.size(); begin += window)
    std::sort(list.data() + begin, list.data() + begin + window, shorter);
  //@ wrong neighbours
  std::iota(list.begin(), list.end(), 0);
  std::stable_sort(list.begin(), list.end(), shorter);
  const auto sorted = list;
  list.clear();
  for (const auto place : shuffled((sorted.size() + window - 1) / window, kSeed + epoch)) {
    for (size_t i = place * window; i < std::min((place + 1) * window, sorted.size()); ++i) list.push_back(sorted[i]);
  }
  //@ end
  return list;
}

// Texts of these lengths: text 0 is 1000 1001 1002 ..., text 1 is 2000 2001 ...
std::vector<Text> made(const std::string& lengths) {
  std::vector<Text> texts;
  std::istringstream words(lengths);
  for (int64_t length = 0; words >> length;) {
    texts.emplace_back(length);
    std::iota(texts.back().begin(), texts.back().end(), 1000 * static_cast<int64_t>(texts.size()));
  }
  return texts;
}

// This rank's texts: places r, r + world, ... of the list, which continues from its start if it is too short.
List share_of(const List& list, const lockstep::Session& session) {
  List mine;
  const auto world = static_cast<size_t>(session.world());
  for (auto place = static_cast<size_t>(session.rank()); mine.size() * world < list.size(); place += world)
    mine.push_back(list[place % list.size()]);
  return mine;
}

// LENGTHS WINDOW BATCH
int main(int count, char** words) {
  return lockstep::run([&] {
    lockstep::Session session;
    const auto texts = made(count > 1 ? words[1] : "5 3 9 4 12 3 6 4 3 7 20 5");
    const size_t window = count > 2 ? std::stoul(words[2]) : 8, size = count > 3 ? std::stoul(words[3]) : 2;
    for (uint64_t epoch = 0; epoch < 3; ++epoch)
      lockstep::show("epoch " + std::to_string(epoch), order_of(texts, window, epoch, session));

    const auto mine = share_of(order_of(texts, window, 0, session), session);
    for (size_t begin = 0; begin < mine.size(); begin += size) {
      const List chosen(mine.data() + begin, mine.data() + std::min(begin + size, mine.size()));
      const auto batch = batch_of(texts, chosen);
      lockstep::show("texts", chosen);
      lockstep::show("shape", batch.sizes().vec());
      lockstep::show("batch", batch);
    }
  });
}
