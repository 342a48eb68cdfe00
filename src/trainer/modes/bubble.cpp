#include "trainer/modes/bubble.h"

#include <vector>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/parallel/one_f_one_b.h"

namespace lockstep::train {

void Bubble::end() {
  if (batches_++ == 0) {
    busy_ = 0;
    return;
  }
  elapsed_ += Seconds(Clock::now() - begin_).count();
}

// Of each stage the mean over the copies of the model.
std::string Bubble::words() const {
  const auto stages = static_cast<size_t>(mesh_.pipeline().world());
  const double formula = 100 * bubble_share(static_cast<int>(stages), micro_batches_);
  if (!mesh_.all().device().is_cpu()) {
    return format("Pipeline: {} stages, {} micro-batches; (p-1)/(m+p-1) gives a bubble of {:.1f} %", stages,
                  micro_batches_, formula);
  }
  std::vector<double> sums(2 * stages, 0.0);
  const auto own = static_cast<size_t>(mesh_.pipeline().rank());
  sums[own] = busy_;
  sums[stages + own] = elapsed_;
  mesh_.all().sum(sums);
  double busy = 0, elapsed = 0;
  std::vector<std::string> shares;
  for (size_t stage = 0; stage < stages; ++stage) {
    if (sums[stages + stage] <= 0) return {};
    busy += sums[stage];
    elapsed += sums[stages + stage];
    shares.push_back(format("{:.0f} %", 100 * (1 - sums[stage] / sums[stages + stage])));
  }
  return format(
      "Pipeline: {} stages, {} micro-batches; bubble {:.1f} % (by stage {}), (p-1)/(m+p-1) gives {:.1f} %",
      stages, micro_batches_, 100 * (1 - busy / elapsed), base::join(shares, ", "), formula);
}

}  // namespace lockstep::train
