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
  // TODO: this is wider than the selected texts need
  for (const auto& text : texts) tokens = std::max(tokens, text.size());
  auto batch = torch::full({int64_t(chosen.size()), 3, int64_t(tokens)}, kPadding, torch::kLong);
  for (size_t i = 0; i < chosen.size(); ++i) {
    const auto& text = texts.at(chosen[i]);
    for (size_t j = 0; j < std::min(text.size(), tokens); ++j) batch[i][0][j] = text[j];
    // TODO: this marks the padding as tokens, too
    batch[i][2].fill_(1);
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
  // TODO: this is shuffled, but is it the same list on all ranks?
  auto list = shuffled(texts.size(), kSeed + epoch + session.rank());
  // TODO: sort the windows
  (void)window, (void)shorter;
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
