#include <lockstep/workshop.h>

// A network: a message of n bytes takes latency + n * seconds_a_byte. Ranks that send at the same time do not
// disturb each other, but a rank has one line out and one line in: bytes that share it come one after the other.
struct Network {
  double latency;          // alpha, seconds
  double bits_per_second;  // as networks are sold: 1 Gbit/s is 1e9
};

// Beta.
double seconds_a_byte(const Network& network) {
  (void)network;
  return 0;  // TODO
}

// All send their n bytes to rank 0, which sends the sums to all. Messages that a rank sends or gets together share
// a latency, not its line. To add takes no time here.
double reduce_broadcast(double ranks, double n, const Network& network) {
  (void)ranks, (void)n, (void)network;
  return 0;  // TODO
}

// Everybody sends its n bytes to everybody, all at once.
double all_to_all(double ranks, double n, const Network& network) {
  return network.latency + (ranks - 1) * n * seconds_a_byte(network);
}

// Chunks of n / ranks bytes, in steps, twice round.
double ring(double ranks, double n, const Network& network) {
  (void)ranks, (void)n, (void)network;
  return 0;  // TODO
}

// From how many bytes on is the ring faster than all_to_all? For 3 ranks and more.
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
