#include <lockstep/workshop.h>

// The training time was measured on one rank, and on several. What do the additional ranks gain?

// Strong scaling: more ranks share the same work. How many times as fast are they?
double speed_up(double seconds_alone, double seconds_together) {
  // TODO
  (void)seconds_alone;
  (void)seconds_together;
  return 0;
}

// Which fraction of the ranks' time was useful?
double strong_efficiency(double seconds_alone, double seconds_together, int ranks) {
  // TODO
  (void)seconds_alone;
  (void)seconds_together;
  (void)ranks;
  return 0;
}

// Weak scaling: each rank has as much work as the single rank had, so the total work grows with the ranks.
double weak_efficiency(double seconds_alone, double seconds_together, int ranks) {
  // TODO
  (void)seconds_alone;
  (void)seconds_together;
  (void)ranks;
  return 0;
}

struct Plan {
  int64_t batch_a_rank;    // data.batch_size
  int64_t batch_together;  // samples per optimizer step
  double lr;
};

// With weak scaling, the batch per rank does not change. Return the plan for this many ranks with the linear rule: a
// batch that is K times as large needs a learning rate that is K times as large.
Plan weak_plan(Plan alone, int ranks) {
  // TODO
  (void)ranks;
  return alone;
}

// RANKS ALONE STRONG WEAK BATCH LR: the number of ranks, three times in seconds, and the plan for a single rank
int main(int count, char** words) {
  return lockstep::run([&] {
    const std::vector<std::string> given(words + 1, words + count);
    const auto word = [&](size_t i, const char* otherwise) { return i < given.size() ? given[i] : otherwise; };
    const int ranks = std::stoi(word(0, "4"));
    const double alone = std::stod(word(1, "80")), strong = std::stod(word(2, "25")), weak = std::stod(word(3, "90"));
    lockstep::show("speed_up", speed_up(alone, strong));
    lockstep::show("strong_efficiency", strong_efficiency(alone, strong, ranks));
    lockstep::show("weak_efficiency", weak_efficiency(alone, weak, ranks));
    const int64_t batch = std::stoll(word(4, "32"));
    const auto plan = weak_plan({batch, batch, std::stod(word(5, "0.01"))}, ranks);
    lockstep::show("batches", std::vector<int64_t>{plan.batch_a_rank, plan.batch_together});
    lockstep::show("lr", plan.lr);
  });
}
