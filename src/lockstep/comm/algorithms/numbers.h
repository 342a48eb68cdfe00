#pragma once
// What an all-reduce works on: numbers in a row, and how two of them become one.

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

/// Element by element: out[i] = (sources[0][i] op sources[1][i]) op ...; out may be one of the sources.
struct Operation {
  std::size_t item_bytes = 0;  ///< of one number
  void (*combine)(const std::byte* const* sources, std::size_t count, std::byte* out,
                  std::size_t items) = nullptr;  ///< in the order of the sources
};

/// The sum of numbers of one type.
template <class T>
Operation sum_of() {
  return {sizeof(T),
          [](const std::byte* const* sources, std::size_t count, std::byte* out, std::size_t items) {
            auto* sum = reinterpret_cast<T*>(out);
            for (std::size_t i = 0; i < items; ++i) {
              T value = reinterpret_cast<const T*>(sources[0])[i];
              for (std::size_t s = 1; s < count; ++s)
                value = static_cast<T>(value + reinterpret_cast<const T*>(sources[s])[i]);
              sum[i] = value;
            }
          }};
}

/// A rank's own numbers, which become the result.
struct Numbers {
  std::byte* data;      ///< the first of them
  std::size_t items;    ///< how many
  Operation operation;  ///< what makes one of two

  /// The bytes of items `begin` to `end`.
  std::span<std::byte> bytes(std::size_t begin, std::size_t end) const {
    return {data + begin * operation.item_bytes, (end - begin) * operation.item_bytes};
  }
  /// All of them.
  std::span<std::byte> bytes() const { return bytes(0, items); }
  /// Items `begin` to `end` as numbers of their own.
  Numbers part(std::size_t begin, std::size_t end) const {
    return {bytes(begin, end).data(), end - begin, operation};
  }
  /// this = this op others: these stand on the left. Ranks that must agree to the last bit pass the numbers
  /// in the same order.
  void add(std::span<const std::byte> others) const { combine(data, others.data()); }
  /// this = others op this.
  void add_to(std::span<const std::byte> others) const { combine(others.data(), data); }

 private:
  void combine(const std::byte* first, const std::byte* second) const {
    const std::byte* sources[] = {first, second};
    if (items > 0) operation.combine(sources, 2, data, items);
  }
};

}  // namespace lockstep
