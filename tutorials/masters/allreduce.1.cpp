//@ title      All-reduce over rank 0
//@ hint       There are two halves: all ranks send their numbers to rank 0, which adds them, and rank 0 sends the sums to all.
//@ hint       On rank 0, receive from each other rank into `theirs`, then add theirs[i] to numbers[i].
//@ hint       On the other ranks, call send(0, read_only(numbers)). In the second half rank 0 sends and the others receive.
//@ hint       The other ranks end with messenger.receive(0, writable(numbers)). Rank 0 ends with a loop of sends, after the loop of receives.
#include <lockstep/workshop.h>

// A message consists of bytes. These functions return the bytes of numbers.
std::span<const std::byte> read_only(const std::vector<float>& numbers) { return std::as_bytes(std::span(numbers)); }
std::span<std::byte> writable(std::vector<float>& numbers) { return std::as_writable_bytes(std::span(numbers)); }

// Every rank calls this with the same count of numbers, and gets the sums over all ranks. Use lockstep::Messenger:
// rank(), world(), send(to, bytes), receive(from, bytes). A send waits for its receiver.
void all_reduce(lockstep::Messenger& messenger, std::vector<float>& numbers) {
  //@ todo
  // TODO: send the numbers to rank 0, which adds them, and send the sums from rank 0 to all
  (void)messenger;
  (void)numbers;
  //@ solution
  if (messenger.rank() != 0) {
    messenger.send(0, read_only(numbers));
    messenger.receive(0, writable(numbers));
    return;
  }
  std::vector<float> theirs(numbers.size());
  for (int rank = 1; rank < messenger.world(); ++rank) {
    messenger.receive(rank, writable(theirs));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] += theirs[i];
  }
  for (int rank = 1; rank < messenger.world(); ++rank) messenger.send(rank, read_only(numbers));
  //@ wrong reduce
  if (messenger.rank() != 0) return messenger.send(0, read_only(numbers));
  std::vector<float> theirs(numbers.size());
  for (int rank = 1; rank < messenger.world(); ++rank) {
    messenger.receive(rank, writable(theirs));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] += theirs[i];
  }
  //@ wrong early
  if (messenger.rank() != 0) {
    messenger.send(0, read_only(numbers));
    return messenger.receive(0, writable(numbers));
  }
  std::vector<float> theirs(numbers.size());
  for (int rank = 1; rank < messenger.world(); ++rank) {
    messenger.receive(rank, writable(theirs));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] += theirs[i];
    messenger.send(rank, read_only(numbers));
  }
  //@ wrong overwritten
  if (messenger.rank() != 0) {
    messenger.send(0, read_only(numbers));
    return messenger.receive(0, writable(numbers));
  }
  for (int rank = 1; rank < messenger.world(); ++rank) messenger.receive(rank, writable(numbers));
  for (int rank = 1; rank < messenger.world(); ++rank) messenger.send(rank, read_only(numbers));
  //@ wrong both_send: rank 0 waits until rank 1 receives its message; rank 1 waits until rank 0 receives
  std::vector<float> theirs(numbers.size());
  for (int rank = 0; rank < messenger.world(); ++rank) {
    if (rank != messenger.rank()) messenger.send(rank, read_only(numbers));
  }
  for (int rank = 0; rank < messenger.world(); ++rank) {
    if (rank == messenger.rank()) continue;
    messenger.receive(rank, writable(theirs));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] += theirs[i];
  }
  //@ wrong both_receive: while every rank receives, no rank sends
  std::vector<float> theirs(numbers.size());
  for (int rank = 0; rank < messenger.world(); ++rank) {
    if (rank != messenger.rank()) messenger.receive(rank, writable(theirs));
  }
  for (int rank = 0; rank < messenger.world(); ++rank) {
    if (rank != messenger.rank()) messenger.send(rank, read_only(numbers));
  }
  //@ wrong never_back: the sender ended without one
  if (messenger.rank() != 0) {
    messenger.send(0, read_only(numbers));
    return messenger.receive(0, writable(numbers));
  }
  std::vector<float> theirs(numbers.size());
  for (int rank = 1; rank < messenger.world(); ++rank) messenger.receive(rank, writable(theirs));
  //@ wrong mean
  if (messenger.rank() != 0) {
    messenger.send(0, read_only(numbers));
    return messenger.receive(0, writable(numbers));
  }
  std::vector<float> theirs(numbers.size());
  for (int rank = 1; rank < messenger.world(); ++rank) {
    messenger.receive(rank, writable(theirs));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] += theirs[i];
  }
  for (float& number : numbers) number /= messenger.world();
  for (int rank = 1; rank < messenger.world(); ++rank) messenger.send(rank, read_only(numbers));
  //@ wrong itself: do not send from a rank to itself
  if (messenger.rank() != 0) {
    messenger.send(0, read_only(numbers));
    return messenger.receive(0, writable(numbers));
  }
  std::vector<float> theirs(numbers.size());
  for (int rank = 0; rank < messenger.world(); ++rank) {
    messenger.receive(rank, writable(theirs));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] += theirs[i];
  }
  for (int rank = 0; rank < messenger.world(); ++rank) messenger.send(rank, read_only(numbers));
  //@ wrong no_room: into an empty vector
  if (messenger.rank() != 0) {
    messenger.send(0, read_only(numbers));
    return messenger.receive(0, writable(numbers));
  }
  std::vector<float> theirs;
  for (int rank = 1; rank < messenger.world(); ++rank) {
    messenger.receive(rank, writable(theirs));
    for (size_t i = 0; i < theirs.size(); ++i) numbers[i] += theirs[i];
  }
  for (int rank = 1; rank < messenger.world(); ++rank) messenger.send(rank, read_only(numbers));
  //@ wrong crash
  if (messenger.rank() != 0) {
    messenger.send(0, read_only(numbers));
    return messenger.receive(0, writable(numbers));
  }
  std::vector<float> theirs;
  for (int rank = 1; rank < messenger.world(); ++rank) {
    messenger.receive(rank, writable(numbers));
    for (size_t i = 0; i < numbers.size(); ++i) numbers.at(i) += theirs.at(i);
  }
  for (int rank = 1; rank < messenger.world(); ++rank) messenger.send(rank, read_only(numbers));
  //@ wrong last_lost
  if (messenger.rank() != 0) {
    messenger.send(0, read_only(numbers));
    return messenger.receive(0, writable(numbers));
  }
  std::vector<float> theirs(numbers.size());
  for (int rank = 1; rank < messenger.world(); ++rank) {
    messenger.receive(rank, writable(theirs));
    for (size_t i = 0; i + 1 < numbers.size(); ++i) numbers[i] += theirs[i];
  }
  for (int rank = 1; rank < messenger.world(); ++rank) messenger.send(rank, read_only(numbers));
  //@ wrong theirs_back
  if (messenger.rank() != 0) {
    messenger.send(0, read_only(numbers));
    return messenger.receive(0, writable(numbers));
  }
  std::vector<float> theirs(numbers.size());
  for (int rank = 1; rank < messenger.world(); ++rank) {
    messenger.receive(rank, writable(theirs));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] += theirs[i];
  }
  for (int rank = 1; rank < messenger.world(); ++rank) messenger.send(rank, read_only(theirs));
  //@ wrong into_another
  std::vector<float> theirs(numbers.size());
  if (messenger.rank() != 0) {
    messenger.send(0, read_only(numbers));
    return messenger.receive(0, writable(theirs));
  }
  for (int rank = 1; rank < messenger.world(); ++rank) {
    messenger.receive(rank, writable(theirs));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] += theirs[i];
  }
  for (int rank = 1; rank < messenger.world(); ++rank) messenger.send(rank, read_only(numbers));
  //@ wrong added_back
  std::vector<float> theirs(numbers.size());
  if (messenger.rank() != 0) {
    messenger.send(0, read_only(numbers));
    messenger.receive(0, writable(theirs));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] += theirs[i];
    return;
  }
  for (int rank = 1; rank < messenger.world(); ++rank) {
    messenger.receive(rank, writable(theirs));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] += theirs[i];
  }
  for (int rank = 1; rank < messenger.world(); ++rank) messenger.send(rank, read_only(numbers));
  //@ wrong nobody: the receiver ended without one
  if (messenger.rank() != 0) {
    messenger.send(0, read_only(numbers));
    return messenger.receive(0, writable(numbers));
  }
  //@ wrong two
  if (messenger.world() == 1) return;
  std::vector<float> theirs(numbers.size());
  if (messenger.rank() == 0) {
    messenger.receive(1, writable(theirs));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] += theirs[i];
    messenger.send(1, read_only(numbers));
  } else if (messenger.rank() == 1) {
    messenger.send(0, read_only(numbers));
    messenger.receive(0, writable(numbers));
  }
  //@ end
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
