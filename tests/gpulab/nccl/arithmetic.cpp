#include "nccl/arithmetic.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "nccl/numbers.h"

namespace lab::nccl {
namespace {

constexpr std::size_t kBlock = 1024;
template <class T>
using Block = std::array<Wide<T>, kBlock>;

template <class T>
void load(const char* from, std::size_t at, std::size_t count, Block<T>& to) {
  const T* numbers = reinterpret_cast<const T*>(from) + at;
  for (std::size_t i = 0; i < count; ++i) to[i] = Number<T>::wide(numbers[i]);
}

template <class T>
void store(const Block<T>& from, std::size_t at, std::size_t count, char* to) {
  T* numbers = reinterpret_cast<T*>(to) + at;
  for (std::size_t i = 0; i < count; ++i) numbers[i] = Number<T>::narrow(from[i]);
}

template <class T>
void round_to_type(Block<T>& block, std::size_t count) {
  if constexpr (!std::is_same_v<T, Wide<T>>)
    for (std::size_t i = 0; i < count; ++i) block[i] = Number<T>::wide(Number<T>::narrow(block[i]));
}

template <class W, std::size_t n, class Join>
void join_each(std::array<W, n>& into, const std::array<W, n>& other, std::size_t count, const Join& join) {
  for (std::size_t i = 0; i < count; ++i) into[i] = join(into[i], other[i]);
}

template <class W, std::size_t n>
void join(ncclRedOp_t op, std::array<W, n>& into, const std::array<W, n>& other, std::size_t count) {
  switch (op) {
    case ncclProd:
      return join_each(into, other, count, times<W>);
    case ncclMax:
      return join_each(into, other, count, larger<W>);
    case ncclMin:
      return join_each(into, other, count, smaller<W>);
    default:
      return join_each(into, other, count, plus<W>);
  }
}

template <class T>
void fold_host(ncclRedOp_t op, const std::vector<int>& ranks, const Shown& shown, std::size_t at,
               std::size_t count, Block<T>& sum) {
  Block<T> next;
  load<T>(shown[static_cast<std::size_t>(ranks.front())], at, count, sum);
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    load<T>(shown[static_cast<std::size_t>(ranks[i])], at, count, next);
    join(op, sum, next, count);
  }
}

template <class T>
void fold_block(ncclRedOp_t op, const Hosts& hosts, const Shown& shown, std::size_t at, std::size_t count,
                char* out) {
  Block<T> total, host;
  fold_host<T>(op, hosts.front(), shown, at, count, total);
  for (std::size_t i = 1; i < hosts.size(); ++i) {
    round_to_type<T>(total, count);
    fold_host<T>(op, hosts[i], shown, at, count, host);
    round_to_type<T>(host, count);
    join(op, total, host, count);
  }
  store<T>(total, at, count, out);
}

template <class T>
T from_bits(std::uint64_t bits) {
  T value;
  std::memcpy(static_cast<void*>(&value), &bits, sizeof value);
  return value;
}

template <class T, class Change>
void change_each(char* numbers, std::size_t count, const Change& change) {
  T* at = reinterpret_cast<T*>(numbers);
  for (std::size_t i = 0; i < count; ++i) at[i] = Number<T>::narrow(change(Number<T>::wide(at[i])));
}

}  // namespace

void fold(ncclDataType_t type, ncclRedOp_t op, const Hosts& hosts, const Shown& shown, char* out,
          std::size_t count) {
  with_type(type, [&](auto number) {
    for (std::size_t at = 0; at < count; at += kBlock)
      fold_block<decltype(number)>(op, hosts, shown, at, std::min(kBlock, count - at), out);
  });
}

void scale(ncclDataType_t type, std::uint64_t factor_bits, char* numbers, std::size_t count) {
  with_type(type, [&](auto number) {
    using T = decltype(number);
    const Wide<T> factor = Number<T>::wide(from_bits<T>(factor_bits));
    change_each<T>(numbers, count, [&](Wide<T> value) { return times(value, factor); });
  });
}

void divide(ncclDataType_t type, int by, char* numbers, std::size_t count) {
  with_type(type, [&](auto number) {
    using T = decltype(number);
    change_each<T>(numbers, count,
                   [&](Wide<T> value) { return static_cast<Wide<T>>(value / static_cast<Wide<T>>(by)); });
  });
}

bool is_integer(ncclDataType_t type) {
  return type <= ncclUint64;
}

std::uint64_t part_of_one(ncclDataType_t type, int n) {
  std::uint64_t bits = 0;
  with_type(type, [&](auto number) {
    using T = decltype(number);
    const T part = Number<T>::narrow(static_cast<Wide<T>>(1.0 / n));
    std::memcpy(&bits, &part, sizeof part);
  });
  return bits;
}

}  // namespace lab::nccl
