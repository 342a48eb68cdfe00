#include <lockstep/workshop.h>

// A run of 8 ranks that resumes with fewer processes: each process runs some of the ranks. The results must equal those
// with one process per rank, bit for bit. There the gradients are added in rank order: rank 0's and rank 1's, then rank
// 2's, then rank 3's, and so on. Each addition rounds, so a different order gives different bits. (gloo's ring does the
// same for chunks of the numbers, and starts each chunk at a different rank.)
//
// Here a process is a thread, and the messenger calls it a rank: messenger.rank() is the index of the process,
// messenger.world() the number of processes.

// The ranks, from 0 to ranks - 1, that a process runs. Each rank belongs to exactly one process. Process 0 has the
// first ranks, process 1 the next, and so on. The numbers of ranks per process differ by at most one.
std::vector<int64_t> carried_by(int64_t process, int64_t processes, int64_t ranks) {
  std::vector<int64_t> mine;
  // TODO: return only the ranks of this process. At present it returns all ranks.
  (void)process, (void)processes;
  for (int64_t rank = 0; rank < ranks; ++rank) mine.push_back(rank);
  return mine;
}

void add(std::vector<float>& sum, const std::vector<float>& numbers) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += numbers[i];
}

// The sum over all ranks, on each process, with the same bits for any number of processes. `own`: the numbers of each
// rank on this process, in order; empty if the process has no ranks.
std::vector<float> sum_over_ranks(lockstep::Messenger& messenger, const std::vector<std::vector<float>>& own, size_t size) {
  const int process = messenger.rank(), processes = messenger.world();
  std::vector<float> sum(size);  // zeros
  // TODO: add the ranks of the other processes, too, in the right order:
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
    lockstep::run_as_ranks(processes, [&](lockstep::Messenger& messenger) {  // one thread per process
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
