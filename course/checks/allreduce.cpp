// Chapter 4: all-reduce.
#include <cmath>

#include "course/workshop/attempt.h"

namespace lockstep::workshop {
namespace {

constexpr int kWorlds[] = {3, 2, 5, 1};
constexpr size_t kSizes[] = {7, 1, 64, 0};  // the order in which main() tries them

Run run_threads(Attempt& attempt, int world) {
  return attempt.run(
      {.world = 1,
       .label = world == 1 ? "1 thread as the only rank" : format("{} threads as ranks", world),
       .args = {std::to_string(world)}});
}

// number i of rank r was (i + 1) times 1, 10, 100, ...: the digits of a sum tell whose numbers are in it
void check_sums(const Rows& rows, int world) {
  auto row = rows.begin();
  for (const size_t size : kSizes) {
    for (int rank = 0; rank < world; ++rank, ++row) {
      expect(row->size() == size, format("with {} ranks, rank {} ends with {} numbers instead of {}", world,
                                         rank, row->size(), size));
      for (size_t i = 0; i < size; ++i) {
        const double wanted = static_cast<double>(i + 1) * (std::pow(10, world) - 1) / 9;
        expect((*row)[i] == wanted,
               format("with {} ranks and {} number{}, rank {} has {} at index {}, but the sum is {}", world,
                      size, size == 1 ? "" : "s", rank, shown((*row)[i]), i, shown(wanted)),
               "look at the digits: rank 0 had 1, 2, 3, ..., rank 1 had 10, 20, 30, ..., so each digit shows "
               "how often a rank was added");
      }
    }
  }
}

CHECK_OF("allreduce.1", attempt) {
  for (const int world : kWorlds) {
    const auto run = run_threads(attempt, world);
    check_sums(run.ranks[0].rows("numbers", std::size(kSizes) * static_cast<size_t>(world)), world);
  }
}

// bytes that each rank sent to each other one, for every size
void check_traffic(const Rows& sent, int world) {
  auto row = sent.begin();
  for (const size_t size : kSizes) {
    const auto chunk = (static_cast<int>(size) + world - 1) / world;
    for (int rank = 0; rank < world; ++rank, ++row) {
      const auto what =
          format("the sums are right, but with {} ranks and {} numbers rank {} sent", world, size, rank);
      const int right = (rank + 1) % world, most = 2 * (world - 1) * chunk * 4;
      expect(row->size() == static_cast<size_t>(world), what + " to ranks that do not exist");
      for (int to = 0; to < world; ++to) {
        const double bytes = (*row)[static_cast<size_t>(to)];
        expect(to == right || bytes == 0,
               format("{} to rank {}, but its right neighbor is rank {}", what, to, right),
               "send only to the right neighbor in a ring");
        expect(bytes <= most, format("{} {} bytes, but a ring sends at most {}", what, shown(bytes), most),
               "send one chunk per step: after P - 1 steps, each chunk has visited all P ranks");
      }
    }
  }
}

CHECK_OF("allreduce.2", attempt) {
  for (const int world : kWorlds) {
    const auto run = run_threads(attempt, world);
    const auto rows = std::size(kSizes) * static_cast<size_t>(world);
    check_sums(run.ranks[0].rows("numbers", rows), world);
    check_traffic(run.ranks[0].rows("sent", rows), world);
  }
}

CHECK_OF("allreduce.3", attempt) {
  const Rows networks = {{4, 1 << 20, 2e-3, 1e9}, {3, 4096, 200e-6, 1e10}, {8, 100e6, 5e-6, 1e11}};
  for (const auto& network : networks) {
    const double ranks = network[0], size = network[1], latency = network[2], bits = network[3];
    const auto named = format("{} ranks, {:.0f} bytes, {} us, {} Gbit/s", ranks, size, shown(latency * 1e6),
                              shown(bits / 1e9));
    const auto run = attempt.run({.world = 1, .label = named, .args = as_words(network)});
    const auto check = [&](const char* name, double wanted, const char* think) {
      const double is = run.ranks[0].number(name);
      expect(is != 0, format("{} is still 0", name), "read the comment above it, which defines it");
      expect(std::abs(is - wanted) <= 1e-6 * wanted,  // seconds a byte are small numbers
             format("{}: {} gives {}, but {} is correct", named, name, shown(is), shown(wanted)), think);
    };
    const double beta = 8 / bits, steps = ranks - 1;
    check("seconds_a_byte", beta, "a byte has 8 bits");
    check("reduce_broadcast", 2 * (latency + steps * size * beta),
          "messages that arrive together share rank 0's link and one latency; the sums return the same way");
    check("ring", 2 * steps * (latency + size / ranks * beta),
          "the numbers go around twice, in P - 1 steps each time, with one chunk per step");
    check("crossover", (2 * ranks - 3) * latency / (steps * (1 - 2 / ranks) * beta),
          "set both times equal: all_to_all has a latency as well, and the ring's bytes take 2 (P - 1) / P n "
          "beta");
  }
}

}  // namespace
}  // namespace lockstep::workshop
