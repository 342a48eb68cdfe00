//@ title      Predict how long an all-reduce takes
//@ hint       A link of 1 Gbit/s transfers 10^9 bits per second. A byte has 8 bits.
//@ hint       Rank 0's link receives the numbers of P - 1 ranks, and sends the sums to P - 1 ranks.
//@ hint       A ring has P - 1 steps in each half. Each step sends a chunk of n / P bytes.
//@ hint       For the crossover, set all_to_all(n) = ring(n) and solve for n. The factor of alpha is 2 (P - 1) - 1, that of beta (P - 1) - 2 (P - 1) / P.
//@ unsolved   seconds_a_byte is still 0
#include <lockstep/workshop.h>

// A network: a message of n bytes takes latency + n * seconds_a_byte. Ranks that send at the same time do not slow each
// other down, but a rank has one link out and one link in: bytes on the same link are sent one after the other.
struct Network {
  double latency;          // alpha, seconds
  double bits_per_second;  // the bandwidth in bits: 1 Gbit/s is 1e9
};

// The time per byte, beta.
double seconds_a_byte(const Network& network) {
  //@ todo
  (void)network;
  return 0;  // TODO
  //@ solution
  return 8 / network.bits_per_second;
  //@ wrong bits: a byte has 8 bits
  return 1 / network.bits_per_second;
  //@ end
}

// All ranks send n bytes to rank 0, which sends the sums to all. Messages that a rank sends or receives together share
// one latency, but not the bandwidth of its link. Adding takes no time here.
double reduce_broadcast(double ranks, double n, const Network& network) {
  //@ todo
  (void)ranks, (void)n, (void)network;
  return 0;  // TODO
  //@ solution
  return 2 * (network.latency + (ranks - 1) * n * seconds_a_byte(network));
  //@ wrong one_way
  return network.latency + (ranks - 1) * n * seconds_a_byte(network);
  //@ wrong one_line
  return 2 * (network.latency + n * seconds_a_byte(network));
  //@ end
}

// Every rank sends its n bytes to every other rank, all at the same time.
double all_to_all(double ranks, double n, const Network& network) {
  return network.latency + (ranks - 1) * n * seconds_a_byte(network);
}

// The ring: chunks of n / ranks bytes, in steps, twice around.
double ring(double ranks, double n, const Network& network) {
  //@ todo
  (void)ranks, (void)n, (void)network;
  return 0;  // TODO
  //@ solution
  return 2 * (ranks - 1) * (network.latency + n / ranks * seconds_a_byte(network));
  //@ wrong once: go around twice
  return (ranks - 1) * (network.latency + n / ranks * seconds_a_byte(network));
  //@ wrong steps
  return 2 * ranks * (network.latency + n / ranks * seconds_a_byte(network));
  //@ wrong whole: one chunk per step
  return 2 * (ranks - 1) * (network.latency + n * seconds_a_byte(network));
  //@ end
}

// The number of bytes from which the ring is faster than all_to_all, for 3 or more ranks.
double crossover(double ranks, const Network& network) {
  //@ todo
  (void)ranks, (void)network;
  return 0;  // TODO
  //@ solution
  return (2 * ranks - 3) * network.latency / ((ranks - 1) * (1 - 2 / ranks) * seconds_a_byte(network));
  //@ wrong latencies: all_to_all has a latency as well
  return (2 * ranks - 2) * network.latency / ((ranks - 1) * (1 - 2 / ranks) * seconds_a_byte(network));
  //@ end
}

int main(int argc, char** argv) {
  return lockstep::run([&] {
    const auto argument = [&](int i, double otherwise) { return argc > i ? std::stod(argv[i]) : otherwise; };
    const double ranks = argument(1, 4), n = argument(2, 1 << 20);
    const Network network{argument(3, 2e-3), argument(4, 1e9)};  // 2 ms, 1 Gbit/s
    lockstep::show("seconds_a_byte", seconds_a_byte(network));
    lockstep::show("reduce_broadcast", reduce_broadcast(ranks, n, network));
    lockstep::show("ring", ring(ranks, n, network));
    lockstep::show("crossover", crossover(ranks, network));
  });
}
