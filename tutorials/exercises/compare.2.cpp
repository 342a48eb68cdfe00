#include <lockstep/workshop.h>

// DataParallel and DDP on this machine: which one trains faster, and by how much?

enum Way { kDp, kDdp };

// The order in which to run both, `repeats` times each.
std::vector<Way> order_of_runs(int repeats) {
  std::vector<Way> order;
  // TODO: order.push_back(kDp) ...
  (void)repeats;
  return order;
}

constexpr size_t kWarmUp = 2;  // steps at the start of a run that do not count

// The typical time of a step: the median of the step times without the warm-up. For an even count, it is the mean of
// the middle two.
double usual_step(std::vector<double> milliseconds) {
  // TODO
  return milliseconds.front();
}

struct Measured {
  int64_t samples_a_step;  // of all devices or ranks together
  std::vector<double> milliseconds;
};

// How many times as fast DDP is: 2 if it trains twice as many samples/s.
double ddp_is_faster(const Measured& dp, const Measured& ddp) {
  // TODO
  (void)dp;
  (void)ddp;
  return 0;
}

// Converts "40 31.5 12" to numbers.
std::vector<double> numbers(const std::string& words) {
  std::istringstream text(words);
  return {std::istream_iterator<double>(text), {}};
}

// DP_SAMPLES DP_TIMES DDP_SAMPLES DDP_TIMES REPEATS
int main(int count, char** words) {
  return lockstep::run([&] {
    const bool given = count == 6;
    const Measured dp{given ? std::stoll(words[1]) : 256, numbers(given ? words[2] : "900 320 300 250 245 250 700")};
    const Measured ddp{given ? std::stoll(words[3]) : 512, numbers(given ? words[4] : "800 90 250 245 260 255 250")};
    std::string order;
    for (const auto way : order_of_runs(given ? std::stoi(words[5]) : 3)) order += way == kDp ? "dp " : "ddp ";
    lockstep::show("order", order);
    lockstep::show("dp", usual_step(dp.milliseconds));
    lockstep::show("ddp", usual_step(ddp.milliseconds));
    lockstep::show("faster", ddp_is_faster(dp, ddp));
  });
}
