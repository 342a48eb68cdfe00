#pragma once
// One table of calls for every MPI library, with our own handles. Types and values are those of the MPI 5
// standard ABI (chapter 20), so lockstep calls a library with that ABI directly. For other libraries a
// plug-in translates (plugin/plugin.cpp).

#include <cstdint>

namespace lockstep::mpi {

enum class Comm : std::uintptr_t { null = 0x100, world = 0x101, self = 0x102 };
enum class Info : std::uintptr_t { null = 0x130 };
enum class Handler : std::uintptr_t { null = 0x140, errors_are_fatal = 0x141, errors_return = 0x143 };
enum class Request : std::uintptr_t { null = 0x180 };
enum class Op : std::uintptr_t { sum = 0x21, min = 0x22, max = 0x23, bor = 0x29, maxloc = 0x39 };
enum class Type : std::uintptr_t {
  int32 = 0x209,  // a C int
  unsigned_long = 0x20e,
  unsigned_long_long = 0x20f,
  float32 = 0x210,
  float64 = 0x214,
  double_int = 0x229,
  character = 0x243,
  byte = 0x247
};

struct Status {
  int source, tag, error;
  int internal[5];
};

constexpr int kSuccess = 0;
constexpr int kAnySource = -1;
constexpr int kAnyTag = -2;
constexpr int kUndefined = -32766;
constexpr int kShared = 221;  // the kind of comm_split_type
constexpr int kThreadSingle = 0;
constexpr int kThreadFunneled = 1024;
constexpr int kThreadSerialized = 2048;
constexpr int kThreadMultiple = 4096;
constexpr int kMaxErrorString = 512;
constexpr int kMaxLibraryVersion = 8192;
constexpr Status* kIgnore = nullptr;
inline void* const kInPlace = reinterpret_cast<void*>(1);

struct Calls {
#define CALL(name, Name, parameters) int(*name) parameters;
#include "lockstep/mpi/calls.inc"
};

/// The calls of the loaded library (library.h). Throws if none is loaded.
const Calls& calls();

/// A plug-in exports this table under kPluginSymbol. The version must equal kPluginVersion.
struct PluginTable {
  int version;
  Calls calls;
};
constexpr int kPluginVersion = 3;
constexpr const char* kPluginSymbol = "lockstep_mpi_table";

}  // namespace lockstep::mpi
