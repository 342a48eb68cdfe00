//@ title      A fair race
//@ hint       Other users may slow the machine down for a while. What do you measure if only one way runs during that time?
//@ hint       The first steps load kernels and fill caches, so they are slower than the other steps of a long training.
//@ hint       One step that takes ten times as long changes the mean a lot, but hardly the median.
//@ hint       A step with twice the samples may take twice as long at the same speed, so compare samples/s.
#include <lockstep/workshop.h>

// DataParallel and DDP on this machine: which one trains faster, and by how much?

enum Way { kDp, kDdp };

// The order in which to run both, `repeats` times each.
std::vector<Way> order_of_runs(int repeats) {
  std::vector<Way> order;
  //@ todo
  // TODO: order.push_back(kDp) ...
  (void)repeats;
  //@ solution
  for (int i = 0; i < repeats; ++i) {
    order.push_back(kDp);
    order.push_back(kDdp);
  }
  //@ wrong three
  (void)repeats;
  order = {kDp, kDdp, kDp, kDdp, kDp, kDdp};
  //@ wrong blocks: one way finishes before the other begins
  order.assign(static_cast<size_t>(repeats), kDp);
  order.insert(order.end(), static_cast<size_t>(repeats), kDdp);
  //@ end
  return order;
}

constexpr size_t kWarmUp = 2;  // steps at the start of a run that do not count

// The typical time of a step: the median of the step times without the warm-up. For an even count, it is the mean of
// the middle two.
double usual_step(std::vector<double> milliseconds) {
  //@ todo
  // TODO
  return milliseconds.front();
  //@ solution
  milliseconds.erase(milliseconds.begin(), milliseconds.begin() + kWarmUp);
  std::sort(milliseconds.begin(), milliseconds.end());
  const size_t half = milliseconds.size() / 2;
  return milliseconds.size() % 2 ? milliseconds[half] : (milliseconds[half - 1] + milliseconds[half]) / 2;
  //@ wrong cold
  std::sort(milliseconds.begin(), milliseconds.end());
  const size_t half = milliseconds.size() / 2;
  return milliseconds.size() % 2 ? milliseconds[half] : (milliseconds[half - 1] + milliseconds[half]) / 2;
  //@ wrong fastest
  std::sort(milliseconds.begin(), milliseconds.end());
  milliseconds.erase(milliseconds.begin(), milliseconds.begin() + kWarmUp);
  const size_t half = milliseconds.size() / 2;
  return milliseconds.size() % 2 ? milliseconds[half] : (milliseconds[half - 1] + milliseconds[half]) / 2;
  //@ wrong upper
  milliseconds.erase(milliseconds.begin(), milliseconds.begin() + kWarmUp);
  std::sort(milliseconds.begin(), milliseconds.end());
  return milliseconds[milliseconds.size() / 2];
  //@ wrong first_alone
  milliseconds.erase(milliseconds.begin(), milliseconds.begin() + 1);
  std::sort(milliseconds.begin(), milliseconds.end());
  const size_t half = milliseconds.size() / 2;
  return milliseconds.size() % 2 ? milliseconds[half] : (milliseconds[half - 1] + milliseconds[half]) / 2;
  //@ wrong mean
  double sum = 0;
  for (size_t i = kWarmUp; i < milliseconds.size(); ++i) sum += milliseconds[i];
  return sum / static_cast<double>(milliseconds.size() - kWarmUp);
  //@ wrong unsorted
  return milliseconds[kWarmUp + (milliseconds.size() - kWarmUp) / 2];
  //@ end
}

struct Measured {
  int64_t samples_a_step;  // of all devices or ranks together
  std::vector<double> milliseconds;
};

// How many times as fast DDP is: 2 if it trains twice as many samples/s.
double ddp_is_faster(const Measured& dp, const Measured& ddp) {
  //@ todo
  // TODO
  (void)dp;
  (void)ddp;
  return 0;
  //@ solution
  const auto speed = [](const Measured& way) { return double(way.samples_a_step) / usual_step(way.milliseconds); };
  return speed(ddp) / speed(dp);
  //@ wrong steps
  return usual_step(dp.milliseconds) / usual_step(ddp.milliseconds);
  //@ wrong of_means
  const auto speed = [](const Measured& way) {
    const auto warm = std::vector<double>(way.milliseconds.begin() + kWarmUp, way.milliseconds.end());
    return double(way.samples_a_step) / std::accumulate(warm.begin(), warm.end(), 0.0) * double(warm.size());
  };
  return speed(ddp) / speed(dp);
  //@ wrong difference
  const auto speed = [](const Measured& way) { return double(way.samples_a_step) / usual_step(way.milliseconds); };
  return speed(ddp) - speed(dp);
  //@ wrong steps_inverted
  return usual_step(ddp.milliseconds) / usual_step(dp.milliseconds);
  //@ wrong inverted
  const auto speed = [](const Measured& way) { return double(way.samples_a_step) / usual_step(way.milliseconds); };
  return speed(dp) / speed(ddp);
  //@ end
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
