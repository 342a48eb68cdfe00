//@ title      Eight ranks on any number of processes
//@ hint       8 ranks on 3 processes are 3, 3 and 2: which processes take one more?
//@ hint       Each has ranks / processes, and the first ranks % processes have one more: process p begins at p * (ranks / processes) + min(p, ranks % processes).
//@ hint       (a + b) + (c + d) and ((a + b) + c) + d round at different places. Which one lets the next process continue the sum?
//@ hint       Receive the sum so far from process p - 1, add the numbers of your own ranks one by one, and send it to process p + 1.
//@ hint       The last process has the whole sum. Send it back in the other direction: receive it from process p + 1, send it to process p - 1.
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
  //@ todo
  // TODO: return only the ranks of this process. At present it returns all ranks.
  (void)process, (void)processes;
  for (int64_t rank = 0; rank < ranks; ++rank) mine.push_back(rank);
  //@ solution
  const int64_t even = ranks / processes, more = ranks % processes;
  const int64_t first = process * even + std::min(process, more), count = even + (process < more ? 1 : 0);
  for (int64_t rank = first; rank < first + count; ++rank) mine.push_back(rank);
  //@ right spread
  for (int64_t rank = process * ranks / processes; rank < (process + 1) * ranks / processes; ++rank) mine.push_back(rank);
  //@ wrong dropped
  const int64_t even = ranks / processes;
  for (int64_t rank = process * even; rank < (process + 1) * even; ++rank) mine.push_back(rank);
  //@ wrong rest_to_last
  const int64_t even = ranks / processes, end = process + 1 == processes ? ranks : (process + 1) * even;
  for (int64_t rank = process * even; rank < end; ++rank) mine.push_back(rank);
  //@ wrong rounded_up
  const int64_t most = (ranks + processes - 1) / processes;
  for (int64_t rank = process * most; rank < std::min(ranks, (process + 1) * most); ++rank) mine.push_back(rank);
  //@ wrong turns
  for (int64_t rank = process; rank < ranks; rank += processes) mine.push_back(rank);
  //@ wrong shifted
  const int64_t even = ranks / processes, more = ranks % processes;
  for (int64_t rank = process * even; rank < (process + 1) * even + (process < more ? 1 : 0); ++rank) mine.push_back(rank);
  //@ wrong past_end
  for (int64_t rank = process * ranks / processes; rank < (process + 1) * ranks / processes; ++rank) mine.push_back(rank + 1);
  //@ wrong nothing
  (void)process, (void)processes, (void)ranks;
  //@ end
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
  //@ todo
  // TODO: add the ranks of the other processes, too, in the right order:
  //   messenger.receive(from, std::as_writable_bytes(std::span(sum))) and messenger.send(to, std::as_bytes(std::span(sum)))
  (void)process, (void)processes;
  for (const auto& numbers : own) add(sum, numbers);
  //@ solution
  if (process > 0) messenger.receive(process - 1, std::as_writable_bytes(std::span(sum)));
  for (const auto& numbers : own) add(sum, numbers);
  if (process + 1 < processes) {
    messenger.send(process + 1, std::as_bytes(std::span(sum)));
    messenger.receive(process + 1, std::as_writable_bytes(std::span(sum)));  // the complete sum, on its way back
  }
  if (process > 0) messenger.send(process - 1, std::as_bytes(std::span(sum)));
  //@ right sent_to_each
  if (process > 0) messenger.receive(process - 1, std::as_writable_bytes(std::span(sum)));
  for (const auto& numbers : own) add(sum, numbers);
  if (process + 1 < processes) {
    messenger.send(process + 1, std::as_bytes(std::span(sum)));
    messenger.receive(processes - 1, std::as_writable_bytes(std::span(sum)));
  } else {
    for (int to = 0; to < process; ++to) messenger.send(to, std::as_bytes(std::span(sum)));
  }
  //@ wrong own
  (void)process, (void)processes;
  for (const auto& numbers : own) add(sum, numbers);
  //@ wrong sum_of_sums
  for (const auto& numbers : own) add(sum, numbers);
  std::vector<float> other(size);
  if (process > 0) {
    messenger.receive(process - 1, std::as_writable_bytes(std::span(other)));
    add(other, sum);
    sum = other;
  }
  if (process + 1 < processes) {
    messenger.send(process + 1, std::as_bytes(std::span(sum)));
    messenger.receive(process + 1, std::as_writable_bytes(std::span(sum)));
  }
  if (process > 0) messenger.send(process - 1, std::as_bytes(std::span(sum)));
  //@ wrong collected
  for (const auto& numbers : own) add(sum, numbers);
  if (process > 0) {
    messenger.send(0, std::as_bytes(std::span(sum)));
    messenger.receive(0, std::as_writable_bytes(std::span(sum)));
  } else {
    std::vector<float> other(size);
    for (int from = 1; from < processes; ++from) {
      messenger.receive(from, std::as_writable_bytes(std::span(other)));
      add(sum, other);
    }
    for (int to = 1; to < processes; ++to) messenger.send(to, std::as_bytes(std::span(sum)));
  }
  //@ wrong backward
  if (process + 1 < processes) messenger.receive(process + 1, std::as_writable_bytes(std::span(sum)));
  for (size_t i = own.size(); i > 0; --i) add(sum, own[i - 1]);
  if (process > 0) {
    messenger.send(process - 1, std::as_bytes(std::span(sum)));
    messenger.receive(process - 1, std::as_writable_bytes(std::span(sum)));
  }
  if (process + 1 < processes) messenger.send(process + 1, std::as_bytes(std::span(sum)));
  //@ wrong back_to_front: add the ranks in the order
  if (process > 0) messenger.receive(process - 1, std::as_writable_bytes(std::span(sum)));
  for (size_t i = own.size(); i > 0; --i) add(sum, own[i - 1]);
  if (process + 1 < processes) {
    messenger.send(process + 1, std::as_bytes(std::span(sum)));
    messenger.receive(process + 1, std::as_writable_bytes(std::span(sum)));
  }
  if (process > 0) messenger.send(process - 1, std::as_bytes(std::span(sum)));
  //@ wrong in_doubles
  std::vector<double> exact(size);
  if (process > 0) messenger.receive(process - 1, std::as_writable_bytes(std::span(exact)));
  for (const auto& numbers : own)
    for (size_t i = 0; i < size; ++i) exact[i] += numbers[i];
  if (process + 1 < processes) {
    messenger.send(process + 1, std::as_bytes(std::span(exact)));
    messenger.receive(process + 1, std::as_writable_bytes(std::span(exact)));
  }
  if (process > 0) messenger.send(process - 1, std::as_bytes(std::span(exact)));
  for (size_t i = 0; i < size; ++i) sum[i] = static_cast<float>(exact[i]);
  //@ wrong one_way
  if (process > 0) messenger.receive(process - 1, std::as_writable_bytes(std::span(sum)));
  for (const auto& numbers : own) add(sum, numbers);
  if (process + 1 < processes) messenger.send(process + 1, std::as_bytes(std::span(sum)));
  //@ wrong added_again
  if (process > 0) messenger.receive(process - 1, std::as_writable_bytes(std::span(sum)));
  for (const auto& numbers : own) add(sum, numbers);
  if (process + 1 < processes) {
    messenger.send(process + 1, std::as_bytes(std::span(sum)));
    messenger.receive(process + 1, std::as_writable_bytes(std::span(sum)));
    for (const auto& numbers : own) add(sum, numbers);
  }
  if (process > 0) messenger.send(process - 1, std::as_bytes(std::span(sum)));
  //@ wrong all_receive: while every rank receives, no rank sends
  messenger.receive((process + processes - 1) % processes, std::as_writable_bytes(std::span(sum)));
  for (const auto& numbers : own) add(sum, numbers);
  messenger.send((process + 1) % processes, std::as_bytes(std::span(sum)));
  //@ wrong never_sent: that no rank sends
  if (process > 0) messenger.receive(process - 1, std::as_writable_bytes(std::span(sum)));
  for (const auto& numbers : own) add(sum, numbers);
  //@ end
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
