//@ title      Speed-up, efficiency, and the right batch size
//@ hint       A speed-up says how many times as fast the run is. It is above 1 if more ranks help.
//@ hint       Efficiency is the speed-up per rank: 1 if N ranks give a speed-up of N.
//@ hint       Weak scaling gives each rank as much work as the single rank had. How long should that take at best?
//@ hint       The speed-up is alone / together, the efficiency is that divided by ranks, and for weak scaling it is alone / together.
#include <lockstep/workshop.h>

// The training time was measured on one rank, and on several. What do the additional ranks gain?

// Strong scaling: more ranks share the same work. How many times as fast are they?
double speed_up(double seconds_alone, double seconds_together) {
  //@ todo
  // TODO
  (void)seconds_alone;
  (void)seconds_together;
  return 0;
  //@ solution
  return seconds_alone / seconds_together;
  //@ wrong inverted
  return seconds_together / seconds_alone;
  //@ wrong difference
  return seconds_alone - seconds_together;
  //@ end
}

// Which fraction of the ranks' time was useful?
double strong_efficiency(double seconds_alone, double seconds_together, int ranks) {
  //@ todo
  // TODO
  (void)seconds_alone;
  (void)seconds_together;
  (void)ranks;
  return 0;
  //@ solution
  return speed_up(seconds_alone, seconds_together) / ranks;
  //@ wrong speed
  return speed_up(seconds_alone, seconds_together);
  //@ end
}

// Weak scaling: each rank has as much work as the single rank had, so the total work grows with the ranks.
double weak_efficiency(double seconds_alone, double seconds_together, int ranks) {
  //@ todo
  // TODO
  (void)seconds_alone;
  (void)seconds_together;
  (void)ranks;
  return 0;
  //@ solution
  (void)ranks;
  return seconds_alone / seconds_together;
  //@ wrong shared
  return speed_up(seconds_alone, seconds_together) / ranks;
  //@ end
}

struct Plan {
  int64_t batch_a_rank;    // data.batch_size
  int64_t batch_together;  // samples per optimizer step
  double lr;
};

// With weak scaling, the batch per rank does not change. Return the plan for this many ranks with the linear rule: a
// batch that is K times as large needs a learning rate that is K times as large.
Plan weak_plan(Plan alone, int ranks) {
  //@ todo
  // TODO
  (void)ranks;
  return alone;
  //@ solution
  return {alone.batch_a_rank, alone.batch_a_rank * ranks, alone.lr * ranks};
  //@ wrong lr
  return {alone.batch_a_rank, alone.batch_a_rank * ranks, alone.lr};
  //@ wrong numbers
  (void)alone;
  return {32, 32 * ranks, 0.01 * ranks};
  //@ wrong only_lr
  return {alone.batch_a_rank, alone.batch_a_rank * ranks, 0.01 * ranks};
  //@ wrong root
  return {alone.batch_a_rank, alone.batch_a_rank * ranks, alone.lr * std::sqrt(ranks)};
  //@ wrong split: keep the batch of each rank
  return {alone.batch_a_rank / ranks, alone.batch_a_rank, alone.lr};
  //@ end
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
