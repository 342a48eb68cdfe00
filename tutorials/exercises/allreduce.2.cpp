#include <lockstep/workshop.h>

// The numbers are divided into as many chunks as there are ranks; some may be empty. chunk(k) returns one of them. The
// index wraps around: chunk(-1) is the last chunk, chunk(world) is chunk(0).
struct Chunks {
  std::vector<float>& numbers;
  int world;
  std::span<float> operator()(int k) const {
    const size_t ranks = static_cast<size_t>(world), at = static_cast<size_t>((k % world + world) % world);
    const size_t begin = at * numbers.size() / ranks, end = (at + 1) * numbers.size() / ranks;
    return std::span(numbers).subspan(begin, end - begin);
  }
};

// One step: sends a chunk to the right and receives one from the left into `place`, both at the same time.
void pass(lockstep::Messenger& messenger, std::span<const float> mine, std::span<float> place) {
  const int rank = messenger.rank(), world = messenger.world();
  const int right = (rank + 1) % world, left = (rank + world - 1) % world;
  // TODO: use exchange(Outgoing, Incoming) of lockstep::Messenger; std::as_bytes(mine), std::as_writable_bytes(place)
  (void)right, (void)left, (void)mine, (void)place;
}

void all_reduce(lockstep::Messenger& messenger, std::vector<float>& numbers) {
  const int rank = messenger.rank(), world = messenger.world();
  const Chunks chunk{numbers, world};
  std::vector<float> theirs(numbers.size());

  // First half: a chunk starts at each rank, and every rank on its way adds its own numbers.
  // TODO: how many steps? In each, pass() on a chunk, and add what arrived in `theirs` to the matching chunk
  (void)rank, (void)chunk;

  // Second half: the finished chunks go around the ring and replace the chunks of each rank.
  // TODO: the same number of steps. Which chunk is complete on this rank at the start?
}

// Passes on all messages, and records the receiver and size of each message sent.
struct Counting : lockstep::Messenger {
  lockstep::Messenger& inner;
  std::vector<double> bytes;
  explicit Counting(lockstep::Messenger& messenger) : inner(messenger), bytes(static_cast<size_t>(inner.world())) {}
  int rank() const override { return inner.rank(); }
  int world() const override { return inner.world(); }
  void transfer(std::span<const lockstep::Outgoing> out, std::span<const lockstep::Incoming> in) override {
    for (const auto& message : out)
      if (message.to >= 0 && message.to < world()) bytes[static_cast<size_t>(message.to)] += message.bytes.size();
    inner.exchange(out, in);
  }
};

int main(int argc, char** argv) {
  return lockstep::run([&] {
    const int world = argc > 1 ? std::stoi(argv[1]) : 3;
    for (const size_t size : {7, 1, 64, 0}) {
      std::vector<std::vector<float>> results(static_cast<size_t>(world));
      std::vector<std::vector<double>> sent(static_cast<size_t>(world));
      lockstep::run_as_ranks(world, [&](lockstep::Messenger& messenger) {  // one thread per rank
        const auto own = static_cast<size_t>(messenger.rank());
        std::vector<float> numbers(size);
        for (size_t i = 0; i < size; ++i)  // rank 0: 1 2 3 ..., rank 1: 10 20 30 ..., rank 2: 100 200 300 ...
          numbers[i] = static_cast<float>((i + 1) * std::pow(10, messenger.rank()));
        Counting counting(messenger);
        all_reduce(counting, numbers);
        results[own] = numbers;
        sent[own] = counting.bytes;
      });
      for (const auto& numbers : results)
        lockstep::show("numbers", std::vector<double>(numbers.begin(), numbers.end()));
      for (const auto& bytes : sent) lockstep::show("sent", bytes);
    }
  });
}
