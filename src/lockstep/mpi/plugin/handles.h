#pragma once
// Ours and the library's: handles, constants, statuses and levels, each turned into the other.

#include <mpi.h>

#include <cstddef>
#include <type_traits>

#include "lockstep/mpi/calls.h"

namespace lockstep::mpi {

// A handle that is no constant keeps its bits. Those of a library lie far above the constants of the ABI.
template <class Theirs, class Ours>
Theirs same_bits(Ours ours) {
  const auto bits = static_cast<std::uintptr_t>(ours);
  if constexpr (std::is_pointer_v<Theirs>) {
    return reinterpret_cast<Theirs>(bits);
  } else {
    return static_cast<Theirs>(bits);
  }
}

template <class Ours, class Theirs>
Ours same_bits_back(Theirs theirs) {
  if constexpr (std::is_pointer_v<Theirs>) {
    return static_cast<Ours>(reinterpret_cast<std::uintptr_t>(theirs));
  } else {
    return static_cast<Ours>(static_cast<std::make_unsigned_t<Theirs>>(theirs));
  }
}

inline MPI_Comm theirs(Comm comm) {
  switch (comm) {
    case Comm::null:
      return MPI_COMM_NULL;
    case Comm::world:
      return MPI_COMM_WORLD;
    case Comm::self:
      return MPI_COMM_SELF;
  }
  return same_bits<MPI_Comm>(comm);
}

inline MPI_Info theirs(Info info) {
  return info == Info::null ? MPI_INFO_NULL : same_bits<MPI_Info>(info);
}

inline MPI_Request theirs(Request request) {
  return request == Request::null ? MPI_REQUEST_NULL : same_bits<MPI_Request>(request);
}

inline MPI_Errhandler theirs(Handler handler) {
  switch (handler) {
    case Handler::null:
      return MPI_ERRHANDLER_NULL;
    case Handler::errors_are_fatal:
      return MPI_ERRORS_ARE_FATAL;
    case Handler::errors_return:
      return MPI_ERRORS_RETURN;
  }
  return same_bits<MPI_Errhandler>(handler);
}

inline MPI_Op theirs(Op op) {
  switch (op) {
    case Op::sum:
      return MPI_SUM;
    case Op::min:
      return MPI_MIN;
    case Op::max:
      return MPI_MAX;
    case Op::bor:
      return MPI_BOR;
    case Op::maxloc:
      return MPI_MAXLOC;
  }
  return MPI_OP_NULL;
}

inline MPI_Datatype theirs(Type type) {
  switch (type) {
    case Type::int32:
      return MPI_INT;
    case Type::unsigned_long:
      return MPI_UNSIGNED_LONG;
    case Type::unsigned_long_long:
      return MPI_UNSIGNED_LONG_LONG;
    case Type::float32:
      return MPI_FLOAT;
    case Type::float64:
      return MPI_DOUBLE;
    case Type::double_int:
      return MPI_DOUBLE_INT;
    case Type::character:
      return MPI_CHAR;
    case Type::byte:
      return MPI_BYTE;
  }
  return MPI_DATATYPE_NULL;
}

inline Comm ours(MPI_Comm comm) {
  if (comm == MPI_COMM_NULL) return Comm::null;
  if (comm == MPI_COMM_WORLD) return Comm::world;
  if (comm == MPI_COMM_SELF) return Comm::self;
  return same_bits_back<Comm>(comm);
}

inline Handler ours_of(MPI_Errhandler handler) {
  if (handler == MPI_ERRORS_ARE_FATAL) return Handler::errors_are_fatal;
  if (handler == MPI_ERRORS_RETURN) return Handler::errors_return;
  return handler == MPI_ERRHANDLER_NULL ? Handler::null : same_bits_back<Handler>(handler);
}

// MPICH's handles are ints, all of one C++ type: each kind says which it is.
template <class Ours, class Theirs>
Ours ours(Theirs handle) {
  if constexpr (std::is_same_v<Ours, Comm>) {
    return ours(handle);
  } else if constexpr (std::is_same_v<Ours, Handler>) {
    return ours_of(handle);
  } else {
    return handle == theirs(Ours::null) ? Ours::null : same_bits_back<Ours>(handle);
  }
}

/// The library's handle for the time of one call, written back to ours after it.
template <class Ours>
class Slot {
 public:
  explicit Slot(Ours* ours_one) : ours_(ours_one), theirs_(theirs(*ours_one)) {}
  ~Slot() { *ours_ = ours<Ours>(theirs_); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  using Theirs = decltype(theirs(Ours{}));
  operator Theirs*() { return &theirs_; }

 private:
  Ours* ours_;
  Theirs theirs_;
};

template <class Ours>
Slot(Ours*) -> Slot<Ours>;

/// A status keeps its message's bytes where the ABI leaves room.
class StatusSlot {
 public:
  explicit StatusSlot(Status* status) : ours_(status) {}
  ~StatusSlot() {
    if (!ours_) return;
    *ours_ = {theirs_.MPI_SOURCE, theirs_.MPI_TAG, theirs_.MPI_ERROR, {}};
    MPI_Get_count(&theirs_, MPI_BYTE, &ours_->internal[0]);
  }
  StatusSlot(const StatusSlot&) = delete;
  StatusSlot& operator=(const StatusSlot&) = delete;

  operator MPI_Status*() { return ours_ ? &theirs_ : MPI_STATUS_IGNORE; }

 private:
  Status* ours_;
  MPI_Status theirs_{};
};

inline int source_of(int source) {
  return source == kAnySource ? MPI_ANY_SOURCE : source;
}

inline int tag_of(int tag) {
  return tag == kAnyTag ? MPI_ANY_TAG : tag;
}

inline const void* data_of(const void* data) {
  return data == kInPlace ? MPI_IN_PLACE : data;
}

struct ThreadLevel {
  int ours, theirs;
};
constexpr ThreadLevel kLevels[] = {{kThreadSingle, MPI_THREAD_SINGLE},
                                   {kThreadFunneled, MPI_THREAD_FUNNELED},
                                   {kThreadSerialized, MPI_THREAD_SERIALIZED},
                                   {kThreadMultiple, MPI_THREAD_MULTIPLE}};

inline int level_of(int wanted) {
  for (const auto& level : kLevels) {
    if (level.ours == wanted) return level.theirs;
  }
  return MPI_THREAD_SINGLE;
}

inline void tell_level(int theirs, int* provided) {
  for (const auto& level : kLevels) {
    if (level.theirs == theirs) *provided = level.ours;
  }
}

}  // namespace lockstep::mpi
