#include <lockstep/workshop.h>

// A trace says when each bucket was on its way, and when backward had computed this rank's last gradient.
// What an exchange costs is not how long it takes, but what of it is exposed: what is left when backward has
// ended.
//
//   exchange   how long at least one bucket was on its way (two at once: that time counts once)
//   exposed    how much of that came after the end of backward

struct Span {
  double begin, end;  // ms
};

struct Cost {
  double exchange, exposed;
};

// The spans come in the order of their begins. There may be none: a rank alone exchanges nothing.
Cost cost_of(const std::vector<Span>& buckets, double backward_end) {
  // TODO: both numbers
  (void)buckets, (void)backward_end;
  return {0, 0};
}

// Each rank has a trace of its own. The numbers are the end of backward, then a begin and an end for each
// bucket.
int main(int argc, char** argv) {
  return lockstep::run([&] {
    lockstep::Session session;
    std::vector<double> numbers = {100, 20, 60, 50, 90, 95, 130};
    if (argc > 1) numbers.clear();
    for (int i = 1; i < argc; ++i) numbers.push_back(std::stod(argv[i]));

    const double late = 2 * session.rank();  // rank 1 computes a little longer
    std::vector<Span> buckets;
    for (size_t i = 1; i + 1 < numbers.size(); i += 2)
      buckets.push_back({numbers[i] + late, numbers[i + 1] + late});
    const auto cost = cost_of(buckets, numbers[0] + 3 * late);
    lockstep::show("exchange", cost.exchange);
    lockstep::show("exposed", cost.exposed);
  });
}
