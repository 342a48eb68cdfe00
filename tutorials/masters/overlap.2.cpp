//@ title      How much communication is exposed?
//@ hint       Only the time after the end of backward is exposed: cut each span there.
//@ hint       Two buckets may be in transit at once, but their common time counts once. Where did the last one end?
//@ hint       Keep `until`, the time up to which you have counted. A span adds the time after max(begin, until).
#include <lockstep/workshop.h>

// A trace has the time span of each bucket's all-reduce, and the time at which backward ended on this rank. Only
// exposed communication makes a step longer: the part after the end of backward.
//
//   exchange   the time during which at least one bucket was in transit (if two overlap, count that time once)
//   exposed    the part of that time after the end of backward

struct Span {
  double begin, end;  // ms
};

struct Cost {
  double exchange, exposed;
};

// The spans are sorted by their begin. There may be none: a single rank exchanges nothing.
Cost cost_of(const std::vector<Span>& buckets, double backward_end) {
  //@ todo
  // TODO: compute both numbers
  (void)buckets, (void)backward_end;
  return {0, 0};
  //@ solution
  Cost cost = {0, 0};
  double until = 0;
  for (const auto& [begin, end] : buckets) {
    cost.exchange += std::max(0.0, end - std::max(begin, until));
    cost.exposed += std::max(0.0, end - std::max({begin, until, backward_end}));
    until = std::max(until, end);
  }
  return cost;
  //@ wrong twice
  Cost cost = {0, 0};
  for (const auto& [begin, end] : buckets) {
    cost.exchange += end - begin;
    cost.exposed += std::max(0.0, end - std::max(begin, backward_end));
  }
  return cost;
  //@ wrong gaps
  double last = 0;
  for (const auto& span : buckets) last = std::max(last, span.end);
  return {last - buckets.front().begin, std::max(0.0, last - backward_end)};
  //@ wrong none
  Cost cost = {0, 0};
  double until = buckets.at(0).begin;
  for (const auto& [begin, end] : buckets) {
    cost.exchange += std::max(0.0, end - std::max(begin, until));
    cost.exposed += std::max(0.0, end - std::max({begin, until, backward_end}));
    until = std::max(until, end);
  }
  return cost;
  //@ wrong whole
  Cost cost = {0, 0};
  double until = 0;
  for (const auto& [begin, end] : buckets) {
    const double more = std::max(0.0, end - std::max(begin, until));
    cost.exchange += more;
    if (end > backward_end) cost.exposed += more;
    until = std::max(until, end);
  }
  return cost;
  //@ wrong all
  Cost cost = {0, 0};
  double until = 0;
  for (const auto& [begin, end] : buckets) {
    cost.exchange += std::max(0.0, end - std::max(begin, until));
    until = std::max(until, end);
  }
  cost.exposed = cost.exchange;
  return cost;
  //@ wrong negative
  Cost cost = {0, 0};
  double until = 0;
  for (const auto& [begin, end] : buckets) {
    cost.exchange += std::max(0.0, end - std::max(begin, until));
    until = std::max(until, end);
  }
  cost.exposed = until - backward_end;
  return cost;
  //@ end
}

// Each rank has its own trace. The arguments are the end of backward, then a begin and an end for each bucket.
int main(int argc, char** argv) {
  return lockstep::run([&] {
    lockstep::Session session;
    std::vector<double> numbers = {100, 20, 60, 50, 90, 95, 130};
    if (argc > 1) numbers.clear();
    for (int i = 1; i < argc; ++i) numbers.push_back(std::stod(argv[i]));

    const double late = 2 * session.rank();  // rank 1 takes a little longer
    std::vector<Span> buckets;
    for (size_t i = 1; i + 1 < numbers.size(); i += 2)
      buckets.push_back({numbers[i] + late, numbers[i + 1] + late});
    const auto cost = cost_of(buckets, numbers[0] + 3 * late);
    lockstep::show("exchange", cost.exchange);
    lockstep::show("exposed", cost.exposed);
  });
}
