#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "lab.h"
#include "nccl/operations.h"

namespace lab::nccl {
namespace {

// How each type is computed with: the small floating ones in float.
template <class T>
struct Number {
  using Wide = T;
  static Wide wide(T value) { return value; }
  static T narrow(Wide value) { return value; }
};
template <>
struct Number<__half> {
  using Wide = float;
  static float wide(__half value) { return __half2float(value); }
  static __half narrow(float value) { return __float2half_rn(value); }
};
template <>
struct Number<__nv_bfloat16> {
  using Wide = float;
  static float wide(__nv_bfloat16 value) { return __bfloat162float(value); }
  static __nv_bfloat16 narrow(float value) { return __float2bfloat16_rn(value); }
};
template <class T>
using Wide = typename Number<T>::Wide;

/// use(T{}) with the C++ type of NCCL's; nothing for the types of 8-bit floating numbers.
template <class Use>
void with_type(ncclDataType_t type, const Use& use) {
  switch (type) {
    case ncclInt8:
      return use(std::int8_t{});
    case ncclUint8:
      return use(std::uint8_t{});
    case ncclInt32:
      return use(std::int32_t{});
    case ncclUint32:
      return use(std::uint32_t{});
    case ncclInt64:
      return use(std::int64_t{});
    case ncclUint64:
      return use(std::uint64_t{});
    case ncclFloat16:
      return use(__half{});
    case ncclFloat32:
      return use(float{});
    case ncclFloat64:
      return use(double{});
    case ncclBfloat16:
      return use(__nv_bfloat16{});
    default:
      return;
  }
}

// An integer's overflow wraps; a NaN gives way to a number, as on a GPU.
template <class W>
W joined(ncclRedOp_t op, W a, W b) {
  if constexpr (std::is_integral_v<W>) {
    using Unsigned = std::common_type_t<std::make_unsigned_t<W>, unsigned>;
    const auto x = static_cast<Unsigned>(a), y = static_cast<Unsigned>(b);
    return op == ncclProd  ? static_cast<W>(x * y)
           : op == ncclMax ? std::max(a, b)
           : op == ncclMin ? std::min(a, b)
                           : static_cast<W>(x + y);
  } else {
    return op == ncclProd ? a * b : op == ncclMax ? std::fmax(a, b) : op == ncclMin ? std::fmin(a, b) : a + b;
  }
}

/// The ranks' numbers at one place. First the ranks of each host in their order, then the hosts, whose sums
/// have crossed the network in the type itself. So the bits differ from those of a sum over all ranks in a
/// row, as they may with NCCL.
template <class T>
T reduced(const Comm& comm, ncclRedOp_t op, const std::vector<const char*>& shown, std::size_t at) {
  const auto of = [&](int rank) {
    return Number<T>::wide(reinterpret_cast<const T*>(shown[static_cast<std::size_t>(rank)])[at]);
  };
  Wide<T> total{};
  for (const auto& host : comm.hosts) {
    Wide<T> sum = of(host.front());
    for (std::size_t i = 1; i < host.size(); ++i) sum = joined(op, sum, of(host[i]));
    if (comm.hosts.size() > 1) sum = Number<T>::wide(Number<T>::narrow(sum));
    total = &host == &comm.hosts.front() ? sum : joined(op, total, sum);
  }
  if (op == ncclAvg) total = static_cast<Wide<T>>(total / static_cast<Wide<T>>(comm.size));
  return Number<T>::narrow(total);
}

// A collective goes by steps; in each the ranks show some of it in one half of their parts. While the slow
// ones still read that, the fast ones write into the other half, and no further.
class Step {
 public:
  Step(Comm& comm, const Collective& collective, std::size_t at, std::size_t count)
      : comm_(comm), what_(collective), at_(at), count_(count), half_(comm.parts++ % 2) {}

  void show() {
    if (what_.kind == Kind::broadcast && comm_.rank != what_.root) return;
    const int blocks = what_.kind == Kind::reduce_scatter ? comm_.size : 1;
    for (int block = 0; block < blocks; ++block)
      copy(part(comm_.rank) + bytes(index(block) * count_),
           what_.from + bytes(index(block) * what_.count + at_));
  }

  // before the first barrier and behind it
  void sign() { comm_.own().signature[half_] = signature(); }
  void compare() const {
    for (int peer = 0; peer < comm_.size; ++peer) {
      const auto& other = comm_.seat(peer).signature[half_];
      if (!(other == signature()))
        hang_over(comm_, "rank " + std::to_string(comm_.rank) + " does " + described(signature()) +
                             ", rank " + std::to_string(peer) + " " + described(other));
    }
  }

  void take() {
    switch (what_.kind) {
      case Kind::all_reduce:
        return reduce(0);
      case Kind::reduce:
        if (comm_.rank == what_.root) reduce(0);
        return;
      case Kind::reduce_scatter:
        return reduce(index(comm_.rank) * count_);
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

  // the numbers that lie at that place in each part
  void reduce(std::size_t place) const {
    std::vector<const char*> shown;
    for (int rank = 0; rank < comm_.size; ++rank) shown.push_back(part(rank) + bytes(place));
    with_type(what_.type, [&](auto number) {
      using T = decltype(number);
      T* out = reinterpret_cast<T*>(to(0));
      for (std::size_t i = 0; i < count_; ++i) out[i] = reduced<T>(comm_, what_.op, shown, i);
    });
  }

  Signature signature() const {
    return {static_cast<int>(what_.kind), what_.type, what_.op, what_.root, what_.count};
  }
  static std::string described(const Signature& signature) {
    return formatted("%s of %zu (type %d, operation %d, root %d)", name_of(static_cast<Kind>(signature.kind)),
                     signature.count, signature.type, signature.op, signature.root);
  }

  Comm& comm_;
  const Collective& what_;
  const std::size_t at_, count_;
  const std::size_t half_;
};

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  std::size_t size = 0;
  with_type(type, [&](auto number) { size = sizeof number; });
  return size;
}

const char* name_of(Kind kind) {
  static constexpr const char* kNames[] = {"all-reduce", "broadcast", "reduce", "all-gather",
                                           "reduce-scatter"};
  return kNames[static_cast<int>(kind)];
}

void hang_over(Comm& comm, const std::string& mismatch) {
  say("NCCL: %s: a hang on GPUs", mismatch.c_str());
  comm.wait_for_abort();
}

void run(Comm& comm, const Collective& collective) {
  const long number = collective.number ? collective.number : next_collective();
  if (strikes(Fault::async, number))
    comm.fail(ncclSystemError, formatted("collective %ld fails, as asked", number));
  if (strikes(Fault::async, number) || strikes(Fault::hang, number)) comm.wait_for_abort();
  const auto blocks = collective.kind == Kind::reduce_scatter ? static_cast<std::size_t>(comm.size) : 1;
  const std::size_t most = kPart / size_of(collective.type) / blocks;
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
