#include "lockstep/parallel/one_f_one_b.h"

#include <algorithm>

namespace lockstep {

std::vector<Turn> one_f_one_b(int stages, int stage, int64_t micro_batches) {
  const int64_t warm_up = std::min<int64_t>(stages - stage - 1, micro_batches);
  std::vector<Turn> turns;
  for (int64_t i = 0; i < warm_up; ++i) turns.push_back({true, i});
  for (int64_t i = 0; i < micro_batches; ++i) {
    if (warm_up + i < micro_batches) turns.push_back({true, warm_up + i});
    turns.push_back({false, i});
  }
  return turns;
}

std::vector<Turn> gpipe(int64_t micro_batches) {
  std::vector<Turn> turns;
  for (int64_t i = 0; i < micro_batches; ++i) turns.push_back({true, i});
  for (int64_t i = 0; i < micro_batches; ++i) turns.push_back({false, i});
  return turns;
}

double bubble_share(int stages, int64_t micro_batches) {
  return static_cast<double>(stages - 1) / static_cast<double>(micro_batches + stages - 1);
}

}  // namespace lockstep
