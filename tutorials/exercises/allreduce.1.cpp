#include <lockstep/workshop.h>

// A message consists of bytes. These functions return the bytes of numbers.
std::span<const std::byte> read_only(const std::vector<float>& numbers) { return std::as_bytes(std::span(numbers)); }
std::span<std::byte> writable(std::vector<float>& numbers) { return std::as_writable_bytes(std::span(numbers)); }

// Every rank calls this with the same count of numbers, and gets the sums over all ranks. Use lockstep::Messenger:
// rank(), world(), send(to, bytes), receive(from, bytes). A send waits for its receiver.
void all_reduce(lockstep::Messenger& messenger, std::vector<float>& numbers) {
  // TODO: send the numbers to rank 0, which adds them, and send the sums from rank 0 to all
  (void)messenger;
  (void)numbers;
}

int main(int argc, char** argv) {
  return lockstep::run([&] {
    const int world = argc > 1 ? std::stoi(argv[1]) : 3;
    for (const size_t size : {7, 1, 64, 0}) {
      std::vector<std::vector<float>> results(static_cast<size_t>(world));
      lockstep::run_as_ranks(world, [&](lockstep::Messenger& messenger) {  // one thread per rank
        std::vector<float> numbers(size);
        for (size_t i = 0; i < size; ++i)  // rank 0: 1 2 3 ..., rank 1: 10 20 30 ..., rank 2: 100 200 300 ...
          numbers[i] = static_cast<float>((i + 1) * std::pow(10, messenger.rank()));
        all_reduce(messenger, numbers);
        results[static_cast<size_t>(messenger.rank())] = numbers;
      });
      for (const auto& numbers : results)
        lockstep::show("numbers", std::vector<double>(numbers.begin(), numbers.end()));
    }
  });
}
