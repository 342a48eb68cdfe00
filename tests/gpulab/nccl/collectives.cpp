#include "nccl/collectives.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "nccl/arithmetic.h"
#include "nccl/errors.h"
#include "nccl/faults.h"
#include "nccl/mismatch.h"
#include "nccl/numbers.h"

namespace lab::nccl {
namespace {

constexpr std::size_t kSharedWork = 256 * 1024;  // bytes: from here on each rank sums a share for all

// A collective goes by steps; in each the ranks show some of it in one half of their parts. While the slow
// ones still read that, the fast ones write into the other half, and no further.
class Step {
 public:
  Step(Comm& comm, const Collective& collective, std::size_t at, std::size_t count)
      : comm_(comm), what_(collective), at_(at), count_(count), half_(comm.parts++ % 2) {}

  void show() {
    switch (what_.kind) {
      case Kind::broadcast:
        if (comm_.rank == what_.root) show_numbers(what_.from, 0);
        return;
      case Kind::reduce_scatter:
        for (int block = 0; block < comm_.size; ++block)
          show_numbers(what_.from + bytes(index(block) * what_.count), index(block) * count_);
        return;
      default:
        show_numbers(what_.from, 0);
    }
  }

  // before the first barrier and behind it
  void sign() { comm_.own().signature[half_] = signature(); }
  void compare() const {
    for (int peer = 0; peer < comm_.size; ++peer) {
      const auto& other = comm_.seat(peer).signature[half_];
      if (!(other == comm_.own().signature[half_])) hang_over(comm_, difference());
    }
  }

  void take() {
    switch (what_.kind) {
      case Kind::all_reduce:
        return take_sum();
      case Kind::reduce:
        if (comm_.rank == what_.root) fold_into(to(0), 0, count_);
        return;
      case Kind::reduce_scatter:
        return fold_into(to(0), index(comm_.rank) * count_, count_);
      case Kind::broadcast:
        return copy(to(0), part(what_.root));
      case Kind::all_gather:
        for (int peer = 0; peer < comm_.size; ++peer) copy(to(index(peer) * what_.count), part(peer));
    }
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  std::size_t bytes(std::size_t numbers) const { return numbers * size_of(what_.type); }
  char* part(int rank) const { return comm_.board->parts[rank][half_]; }
  char* to(std::size_t offset) const { return what_.to + bytes(offset + at_); }
  void copy(char* to, const char* from) const { std::memcpy(to, from, bytes(count_)); }

  bool reduces() const { return what_.kind != Kind::broadcast && what_.kind != Kind::all_gather; }

  void show_numbers(const char* from, std::size_t place) {
    char* shown = part(comm_.rank) + bytes(place);
    copy(shown, from + bytes(at_));
    if (reduces() && what_.reduction.scales) scale(what_.type, factor(), shown, count_);
  }

  std::uint64_t factor() const {
    const Scalar& scalar = what_.reduction.factor;
    std::uint64_t bits = scalar.bits;
    if (scalar.on_device) std::memcpy(&bits, scalar.on_device, size_of(what_.type));
    return bits;
  }

  // of the numbers that lie at that place in each part
  void fold_into(char* to, std::size_t place, std::size_t count) {
    Shown shown;
    for (int rank = 0; rank < comm_.size; ++rank) shown.push_back(part(rank) + bytes(place));
    fold(what_.type, what_.reduction.op, comm_.hosts, shown, to, count);
    if (what_.reduction.divide_by != 1) divide(what_.type, what_.reduction.divide_by, to, count);
  }

  void take_sum() {
    if (bytes(count_) * index(comm_.size) < kSharedWork) return fold_into(to(0), 0, count_);
    const std::size_t own = share(comm_.rank);
    fold_into(part(comm_.rank) + bytes(own), own, share(comm_.rank + 1) - own);
    comm_.barrier();
    for (int peer = 0; peer < comm_.size; ++peer)
      std::memcpy(to(share(peer)), part(peer) + bytes(share(peer)), bytes(share(peer + 1) - share(peer)));
  }
  std::size_t share(int rank) const { return count_ * index(rank) / index(comm_.size); }

  Signature signature() const {
    const int op = reduces() ? what_.reduction.op + (what_.reduction.scales ? ncclNumOps : 0) : 0;
    return {static_cast<int>(what_.kind), what_.type, op, what_.root, what_.count};
  }

  static std::string described(const Signature& signature) {
    return formatted("%s of %zu %s (operation %d, root %d)", name_of(static_cast<Kind>(signature.kind)),
                     signature.count, name_of(static_cast<ncclDataType_t>(signature.type)),
                     signature.reduction, signature.root);
  }

  // said by rank 0 and the first that differs from it: the two sides
  std::string difference() const {
    const auto& first = comm_.seat(0).signature[half_];
    int other = 0;
    while (comm_.seat(other).signature[half_] == first) ++other;
    if (comm_.rank != 0 && comm_.rank != other) return "";
    return formatted("rank 0 of %s does %s, rank %d %s", comm_.name.c_str(), described(first).c_str(), other,
                     described(comm_.seat(other).signature[half_]).c_str());
  }

  Comm& comm_;
  const Collective& what_;
  const std::size_t at_, count_;
  const std::size_t half_;
};

std::size_t numbers_in_a_step(const Comm& comm, const Collective& collective) {
  const auto blocks = collective.kind == Kind::reduce_scatter ? static_cast<std::size_t>(comm.size) : 1;
  return kPart / size_of(collective.type) / blocks;
}

void perhaps_never_begin(Comm& comm, long number) {
  if (strikes(Fault::hang, number)) comm.wait_for_abort();
  if (!strikes(Fault::async, number)) return;
  comm.fail(ncclSystemError, formatted("collective %ld fails, as asked", number));
  comm.wait_for_abort();
}

}  // namespace

const char* name_of(Kind kind) {
  static constexpr const char* kNames[] = {"all-reduce", "broadcast", "reduce", "all-gather",
                                           "reduce-scatter"};
  return kNames[static_cast<int>(kind)];
}

void run(Comm& comm, const Collective& collective) {
  const long number = collective.number ? collective.number : next_collective();
  perhaps_never_begin(comm, number);
  const std::size_t most = numbers_in_a_step(comm, collective);
  for (std::size_t at = 0; at < collective.count; at += most) {
    Step step(comm, collective, at, std::min(most, collective.count - at));
    if (at == 0) step.sign();
    step.show();
    if (strikes(Fault::kill, number)) ::kill(::getpid(), SIGKILL);
    comm.barrier();
    if (at == 0) step.compare();
    step.take();
  }
}

}  // namespace lab::nccl
