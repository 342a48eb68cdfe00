#pragma once
// A store's clone, in libtorchs whose stores have one.

namespace lockstep::comm {

/// A connection of its own; the same store in older versions.
template <class StorePointer>
StorePointer copy_of(const StorePointer& store) {
  if constexpr (requires { store->clone(); }) {
    return store->clone();
  } else {
    return store;
  }
}

}  // namespace lockstep::comm
