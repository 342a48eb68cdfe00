#pragma once
// Translates handles, constants, statuses and thread levels between lockstep and one MPI library.

#include <mpi.h>

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "lockstep/mpi/calls.h"

namespace lockstep::mpi {

// The constants of each kind of handle.

inline auto constants(Comm) {
  return std::array{std::pair(Comm::null, MPI_COMM_NULL), std::pair(Comm::world, MPI_COMM_WORLD),
                    std::pair(Comm::self, MPI_COMM_SELF)};
}
inline auto constants(Info) {
  return std::array{std::pair(Info::null, MPI_INFO_NULL)};
}
inline auto constants(Request) {
  return std::array{std::pair(Request::null, MPI_REQUEST_NULL)};
}
inline auto constants(Handler) {
  return std::array{std::pair(Handler::null, MPI_ERRHANDLER_NULL),
                    std::pair(Handler::errors_are_fatal, MPI_ERRORS_ARE_FATAL),
                    std::pair(Handler::errors_return, MPI_ERRORS_RETURN)};
}
inline auto constants(Op) {
  return std::array{std::pair(Op::sum, MPI_SUM), std::pair(Op::min, MPI_MIN), std::pair(Op::max, MPI_MAX),
                    std::pair(Op::bor, MPI_BOR), std::pair(Op::maxloc, MPI_MAXLOC)};
}
inline auto constants(Type) {
  return std::array{std::pair(Type::int32, MPI_INT),
                    std::pair(Type::unsigned_long, MPI_UNSIGNED_LONG),
                    std::pair(Type::unsigned_long_long, MPI_UNSIGNED_LONG_LONG),
                    std::pair(Type::float32, MPI_FLOAT),
                    std::pair(Type::float64, MPI_DOUBLE),
                    std::pair(Type::double_int, MPI_DOUBLE_INT),
                    std::pair(Type::character, MPI_CHAR),
                    std::pair(Type::byte, MPI_BYTE)};
}

template <class T>
concept Handle = requires(T handle) {
  constants(handle);
};

// theirs(...): what the library takes for an argument of ours. Numbers and buffers are the same for both.

template <class T>
T theirs(T same) {
  return same;
}

inline const void* theirs(const void* data) {
  return data == kInPlace ? MPI_IN_PLACE : data;
}

// A handle that is no constant keeps its bits. Those of a library lie far above the constants of the ABI.
template <Handle Ours>
auto theirs(Ours ours) {
  using Theirs = decltype(constants(ours).front().second);
  for (const auto& [own, other] : constants(ours))
    if (own == ours) return other;
  const auto bits = static_cast<std::uintptr_t>(ours);
  if constexpr (std::is_pointer_v<Theirs>) {
    return reinterpret_cast<Theirs>(bits);
  } else {
    return static_cast<Theirs>(bits);
  }
}

template <Handle Ours, class Theirs>
Ours ours(Theirs theirs) {
  for (const auto& [own, other] : constants(Ours()))
    if (other == theirs) return own;
  if constexpr (std::is_pointer_v<Theirs>) {
    return static_cast<Ours>(reinterpret_cast<std::uintptr_t>(theirs));
  } else {
    return static_cast<Ours>(static_cast<std::make_unsigned_t<Theirs>>(theirs));
  }
}

/// The library's handle for the time of one call, written back to ours after it.
template <Handle Ours>
class Slot {
 public:
  explicit Slot(Ours* ours_one) : ours_(ours_one), theirs_(theirs(*ours_one)) {}
  ~Slot() { *ours_ = ours<Ours>(theirs_); }
  Slot(Slot&&) = delete;

  using Theirs = decltype(theirs(Ours()));
  operator Theirs*() { return &theirs_; }

 private:
  Ours* ours_;
  Theirs theirs_;
};

/// A status keeps its message's bytes where the ABI leaves room.
class StatusSlot {
 public:
  explicit StatusSlot(Status* status) : ours_(status) {}
  ~StatusSlot() {
    if (!ours_) return;
    *ours_ = {theirs_.MPI_SOURCE, theirs_.MPI_TAG, theirs_.MPI_ERROR, {}};
    MPI_Get_count(&theirs_, MPI_BYTE, &ours_->internal[0]);
  }
  StatusSlot(StatusSlot&&) = delete;

  operator MPI_Status*() { return ours_ ? &theirs_ : MPI_STATUS_IGNORE; }

 private:
  Status* ours_;
  MPI_Status theirs_{};
};

template <Handle Ours>
Slot<Ours> theirs(Ours* handle) {
  return Slot<Ours>(handle);
}

inline StatusSlot theirs(Status* status) {
  return StatusSlot(status);
}

constexpr std::pair<int, int> kLevels[] = {{kThreadSingle, MPI_THREAD_SINGLE},
                                           {kThreadFunneled, MPI_THREAD_FUNNELED},
                                           {kThreadSerialized, MPI_THREAD_SERIALIZED},
                                           {kThreadMultiple, MPI_THREAD_MULTIPLE}};

inline int library_level(int wanted) {
  for (const auto& [own, other] : kLevels)
    if (own == wanted) return other;
  return MPI_THREAD_SINGLE;
}

inline void store_level(int level, int* provided) {
  for (const auto& [own, other] : kLevels)
    if (other == level) *provided = own;
}

}  // namespace lockstep::mpi
