#pragma once
// A square matrix, transposed.

#include "lockstep/kernels/vector.h"

namespace lockstep::kernels {

// Zipping the first half of the rows with the second, as often as halves can be cut, transposes a square.
template <class T, int side>
LOCKSTEP_INLINE inline void transpose_square(const T* from, int64_t row, T* to, int64_t to_row) {
  if constexpr (side == 1) {
    *to = *from;
  } else {
    using V = Vector<T, side>;
    V rows[side];
    unrolled<side>([&](auto i) LOCKSTEP_INLINE { rows[i] = load<V>(from + i * row); });
    for (int cut = 1; cut < side; cut *= 2) {
      V zips[side];
      unrolled<side / 2>([&](auto i) LOCKSTEP_INLINE {
        zips[2 * i] = zipped<side, 0>(rows[i], rows[i + side / 2]);
        zips[2 * i + 1] = zipped<side, 1>(rows[i], rows[i + side / 2]);
      });
      unrolled<side>([&](auto i) LOCKSTEP_INLINE { rows[i] = zips[i]; });
    }
    unrolled<side>([&](auto i) LOCKSTEP_INLINE { store(to + i * to_row, rows[i]); });
  }
}

/// [rows][columns] to [columns][rows], by squares; `row`: how far one row is from the next.
template <class T, int side>
LOCKSTEP_INLINE inline void turn(Lanes<side> square, const T* from, int64_t row, int64_t rows,
                                 int64_t columns, T* to) {
  if constexpr (side > 1) {
    if (rows < side || columns < side) return turn(Lanes<side / 2>(), from, row, rows, columns, to);
  }
  for_chunks(square, rows, [&](auto, int64_t y) LOCKSTEP_INLINE {
    for_chunks(square, columns, [&](auto, int64_t x) LOCKSTEP_INLINE {
      transpose_square<T, side>(from + y * row + x, row, to + x * rows + y, rows);
    });
  });
}

}  // namespace lockstep::kernels
