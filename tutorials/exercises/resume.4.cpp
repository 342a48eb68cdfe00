#include <lockstep/workshop.h>

// A run of 8 ranks that goes on with fewer processes: each of them carries some of the ranks. It has to end with the
// bits that it has with a process for each rank. There the gradients are added one rank after the other: rank 0's and
// rank 1's, to this sum rank 2's, to this rank 3's. Each addition rounds, so another order has other bits. (gloo's ring
// cuts the numbers into pieces and begins each with another rank; piece by piece it is the same.)
//
// Here a process is a thread, and the messenger calls it a rank: messenger.rank() is the process's number,
// messenger.world() how many processes there are.

// The ranks that a process carries, of 0 ... ranks - 1. Each rank is carried by one process. They stand in a row: those
// of process 0 are the first, those of process 1 come next. No process carries two more than another.
std::vector<int64_t> carried_by(int64_t process, int64_t processes, int64_t ranks) {
  std::vector<int64_t> mine;
  // TODO: only the ranks of this process. For now it takes them all.
  (void)process, (void)processes;
  for (int64_t rank = 0; rank < ranks; ++rank) mine.push_back(rank);
  return mine;
}

void add(std::vector<float>& sum, const std::vector<float>& numbers) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += numbers[i];
}

// The sum over all ranks, on each process, to the same bits with any number of processes. `own`: the numbers of each
// rank that this process carries, in order; a process may carry none.
std::vector<float> sum_over_ranks(lockstep::Messenger& messenger, const std::vector<std::vector<float>>& own, size_t size) {
  const int process = messenger.rank(), processes = messenger.world();
  std::vector<float> sum(size);  // zeros
  // TODO: the ranks of the other processes, too, in the right order:
  //   messenger.receive(from, std::as_writable_bytes(std::span(sum))) and messenger.send(to, std::as_bytes(std::span(sum)))
  (void)process, (void)processes;
  for (const auto& numbers : own) add(sum, numbers);
  return sum;
}

// RANKS PROCESSES
int main(int argc, char** argv) {
  return lockstep::run([&] {
    const int ranks = argc > 1 ? std::stoi(argv[1]) : 8, processes = argc > 2 ? std::stoi(argv[2]) : 3;
    constexpr size_t kSize = 32;
    const auto numbers_of = [&](int64_t rank) {  // 1, 1/2, 1/3, 1/4, ...; rank 1 begins with 1/2, rank 2 with 1/3
      std::vector<float> numbers;
      for (size_t i = 0; i < kSize; ++i) numbers.push_back(1 / static_cast<float>(1 + i + static_cast<size_t>(rank)));
      return numbers;
    };
    std::vector<std::vector<float>> sums(static_cast<size_t>(processes));
    lockstep::run_as_ranks(processes, [&](lockstep::Messenger& messenger) {  // a thread is a process
      std::vector<std::vector<float>> own;
      for (const auto rank : carried_by(messenger.rank(), processes, ranks)) own.push_back(numbers_of(rank));
      sums[static_cast<size_t>(messenger.rank())] = sum_over_ranks(messenger, own, kSize);
    });
    for (int process = 0; process < processes; ++process) {
      lockstep::show("carries", carried_by(process, processes, ranks));
      lockstep::show("sum", std::vector<double>(sums[process].begin(), sums[process].end()));
    }
  });
}
