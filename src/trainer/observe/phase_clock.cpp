#include "trainer/observe/phase_clock.h"

#include <numeric>

#include "lockstep/base/format.h"

namespace lockstep::train {

const char* name_of(Phase phase) {
  static constexpr std::array<const char*, kPhases> kNames = {
      "data", "forward", "backward", "waiting for communication", "optimiser", "other"};
  return kNames[static_cast<size_t>(phase)];
}

std::string phase_table(const PhaseSeconds& seconds) {
  const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  std::string text;
  for (size_t i = 0; i < kPhases; ++i) {
    text += format("{}{} {:.2f} s ({:.0f} %)", i ? ", " : "", name_of(static_cast<Phase>(i)), seconds[i],
                   total > 0 ? 100 * seconds[i] / total : 0);
  }
  return text;
}

}  // namespace lockstep::train
