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
  // TODO: compute both numbers
  (void)buckets, (void)backward_end;
  return {0, 0};
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
