#include <lockstep/workshop.h>

// A network: a message of n bytes takes latency + n * seconds_a_byte. Ranks that send at the same time do not slow each
// other down, but a rank has one link out and one link in: bytes on the same link are sent one after the other.
struct Network {
  double latency;          // alpha, seconds
  double bits_per_second;  // the bandwidth in bits: 1 Gbit/s is 1e9
};

// The time per byte, beta.
double seconds_a_byte(const Network& network) {
  (void)network;
  return 0;  // TODO
}

// All ranks send n bytes to rank 0, which sends the sums to all. Messages that a rank sends or receives together share
// one latency, but not the bandwidth of its link. Adding takes no time here.
double reduce_broadcast(double ranks, double n, const Network& network) {
  (void)ranks, (void)n, (void)network;
  return 0;  // TODO
}

// Every rank sends its n bytes to every other rank, all at the same time.
double all_to_all(double ranks, double n, const Network& network) {
  return network.latency + (ranks - 1) * n * seconds_a_byte(network);
}

// The ring: chunks of n / ranks bytes, in steps, twice around.
double ring(double ranks, double n, const Network& network) {
  (void)ranks, (void)n, (void)network;
  return 0;  // TODO
}

// The number of bytes from which the ring is faster than all_to_all, for 3 or more ranks.
double crossover(double ranks, const Network& network) {
  (void)ranks, (void)network;
  return 0;  // TODO
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
