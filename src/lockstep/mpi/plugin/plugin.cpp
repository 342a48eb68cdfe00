// The table of calls for one MPI library, compiled against its mpi.h: handles and constants are translated,
// nothing else happens here. It is not linked to that library, which is loaded before it.
#include <mpi.h>

#include "lockstep/mpi/calls.h"
#include "lockstep/mpi/plugin/handles.h"

namespace lockstep::mpi {
namespace {

template <class Call, class Signature>
struct Translated;

template <class Call, class... Ours>
struct Translated<Call, int(Ours...)> {
  static int run(Ours... ours) { return Call()(theirs(ours)...); }
};

int comm_split(Comm of, int color, int key, Comm* made) {
  return MPI_Comm_split(theirs(of), color == kUndefined ? MPI_UNDEFINED : color, key, theirs(made));
}

int comm_split_type(Comm of, int kind, int key, Info info, Comm* made) {
  return MPI_Comm_split_type(theirs(of), kind == kShared ? MPI_COMM_TYPE_SHARED : kind, key, theirs(info),
                             theirs(made));
}

int get_count(const Status* status, Type type, int* count) {
  int size = 0;
  const int code = MPI_Type_size(theirs(type), &size);
  if (code == MPI_SUCCESS) *count = status->internal[0] / size;
  return code;
}

int init_thread(int* argc, char*** argv, int wanted, int* provided) {
  int level = MPI_THREAD_SINGLE;
  const int code = MPI_Init_thread(argc, argv, library_level(wanted), &level);
  store_level(level, provided);
  return code;
}

int irecv(void* data, int count, Type type, int source, int tag, Comm comm, Request* request) {
  return MPI_Irecv(data, count, theirs(type), source == kAnySource ? MPI_ANY_SOURCE : source,
                   tag == kAnyTag ? MPI_ANY_TAG : tag, theirs(comm), theirs(request));
}

int query_thread(int* provided) {
  int level = MPI_THREAD_SINGLE;
  const int code = MPI_Query_thread(&level);
  store_level(level, provided);
  return code;
}

}  // namespace
}  // namespace lockstep::mpi

extern "C" __attribute__((visibility("default"))) const lockstep::mpi::PluginTable* lockstep_mpi_table() {
  using namespace lockstep::mpi;
#define CALL(name, Name, parameters) \
  Translated<decltype([](auto&&... theirs) { return MPI_##Name(theirs...); }), int parameters>::run,
#define SPECIAL_CALL(name, Name, parameters) name,
  static const PluginTable table = {kPluginVersion,
                                    {
#include "lockstep/mpi/calls.inc"
                                    }};
  return &table;
}
