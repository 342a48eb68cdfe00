// docs/pictures/pipeline.svg is drawn from the schedules: LOCKSTEP_DRAW=1 writes it, a test holds it to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <tuple>

#include "lockstep/base/format.h"
#include "lockstep/parallel/one_f_one_b.h"

namespace lockstep {
namespace {

constexpr int kStages = 4;
constexpr int64_t kBatches = 8;
constexpr int kUnit = 22, kRow = 26, kLeft = 62, kMargin = 10;  // pixels
constexpr int kForward = 1, kBackward = 2;  // units of time: a backward is about two forwards

using Orders = std::vector<std::vector<Turn>>;

struct Box {
  int stage, begin;
  Turn turn;
};

int length_of(const Turn& turn) {
  return turn.forward ? kForward : kBackward;
}

// When each turn begins, a message taking no time.
std::vector<Box> played(const Orders& orders) {
  std::vector<Box> boxes;
  std::map<std::tuple<bool, int, int64_t>, int> ends;
  std::vector<size_t> next(orders.size(), 0);
  std::vector<int> free_at(orders.size(), 0);
  for (size_t last = 1; boxes.size() != last;) {
    last = boxes.size();
    for (int stage = 0; stage < kStages; ++stage) {
      const auto s = static_cast<size_t>(stage);
      if (next[s] == orders[s].size()) continue;
      const auto turn = orders[s][next[s]];
      const int from = turn.forward ? stage - 1 : stage + 1;
      const bool awaited = from >= 0 && from < kStages;
      const auto sent = ends.find({turn.forward, from, turn.micro_batch});
      if (awaited && sent == ends.end()) continue;
      const int begin = awaited ? std::max(free_at[s], sent->second) : free_at[s];
      boxes.push_back({stage, begin, turn});
      ends[{turn.forward, stage, turn.micro_batch}] = free_at[s] = begin + length_of(turn);
      ++next[s];
    }
  }
  return boxes;
}

std::string drawn(const std::string& title, const Orders& orders, int top) {
  std::string text = format("<text x=\"0\" y=\"{}\" class=\"title\">{}</text>\n", top + 14, title);
  for (int stage = 0; stage < kStages; ++stage)
    text += format("<text x=\"0\" y=\"{}\">stage {}</text>\n", top + 24 + kRow * stage + 18, stage);
  for (const auto& [stage, begin, turn] : played(orders)) {
    const int x = kLeft + kUnit * begin, y = top + 24 + kRow * stage, width = kUnit * length_of(turn);
    text += format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"{}\"/>\n", x, y, width - 1,
                   kRow - 2, turn.forward ? "f" : "b");
    text += format("<text x=\"{}\" y=\"{}\" class=\"n\">{}</text>\n", x + width / 2, y + 17,
                   turn.micro_batch + 1);
  }
  return text;
}

std::string picture() {
  Orders ours, gpipes;
  for (int stage = 0; stage < kStages; ++stage) {
    ours.push_back(one_f_one_b(kStages, stage, kBatches));
    gpipes.push_back(gpipe(kBatches));
  }
  const int panel = 24 + kRow * kStages + 14;
  const int units = (kForward + kBackward) * (static_cast<int>(kBatches) + kStages - 1);
  const int width = kLeft + kUnit * units;
  auto text = format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{0} {0} {1} {2}\" role=\"img\">\n",
                     -kMargin, width + 2 * kMargin, 2 * panel + 22 + 2 * kMargin);
  text +=
      "<title>Four stages, eight micro-batches: one forward one backward, and GPipe</title>\n"
      "<style>text{font:13px sans-serif;fill:#222}.title{font-weight:bold}.f{fill:#2f6fb0}.b{fill:#2e8b57}\n"
      ".paper{fill:#fff}.n{fill:#fff;text-anchor:middle}\n"
      "@media(prefers-color-scheme:dark){.paper{fill:#14171c}text{fill:#e8eaed}.n{fill:#fff}}</style>\n";
  text += format("<rect x=\"{0}\" y=\"{0}\" width=\"{1}\" height=\"{2}\" class=\"paper\"/>\n", -kMargin,
                 width + 2 * kMargin, 2 * panel + 22 + 2 * kMargin);
  text += drawn("One forward, one backward: stage s keeps at most 4 - s micro-batches alive", ours, 0);
  text += drawn("GPipe: the same bubble, all 8 alive at once", gpipes, panel);
  text += format(
      "<rect x=\"{0}\" y=\"{1}\" width=\"20\" height=\"14\" class=\"f\"/><text x=\"{2}\" y=\"{3}\">"
      "forward</text>\n",
      kLeft, 2 * panel, kLeft + 26, 2 * panel + 12);
  text += format(
      "<rect x=\"{0}\" y=\"{1}\" width=\"20\" height=\"14\" class=\"b\"/><text x=\"{2}\" y=\"{3}\">"
      "backward, drawn twice as long; what is empty is the bubble</text>\n",
      kLeft + 100, 2 * panel, kLeft + 126, 2 * panel + 12);
  return text + "</svg>\n";
}

TEST(SchedulePicture, ShowsTheSchedulesThatRun) {
  const std::string path = "docs/pictures/pipeline.svg";
  const auto wanted = picture();
  if (std::getenv("LOCKSTEP_DRAW")) std::ofstream(path) << wanted;
  std::ifstream file(path);
  std::stringstream found;
  found << file.rdbuf();
  EXPECT_EQ(found.str(), wanted) << "draw it again: LOCKSTEP_DRAW=1 and this test";
}

}  // namespace
}  // namespace lockstep
