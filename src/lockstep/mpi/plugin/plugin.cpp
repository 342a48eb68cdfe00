// The table of calls for one MPI library, compiled against its mpi.h: handles and constants are translated,
// nothing else happens here. It is not linked to that library, which is loaded before it.
#include <mpi.h>

#include "lockstep/mpi/calls.h"
#include "lockstep/mpi/plugin/handles.h"

namespace lockstep::mpi {
namespace {

int abort(Comm comm, int status) {
  return MPI_Abort(theirs(comm), status);
}

int allgather(const void* own, int count, Type type, void* all, int count_each, Type type_each, Comm comm) {
  return MPI_Allgather(data_of(own), count, theirs(type), all, count_each, theirs(type_each), theirs(comm));
}

int allgatherv(const void* own, int count, Type type, void* all, const int* counts, const int* starts,
               Type type_each, Comm comm) {
  return MPI_Allgatherv(data_of(own), count, theirs(type), all, counts, starts, theirs(type_each),
                        theirs(comm));
}

int allreduce(const void* own, void* all, int count, Type type, Op op, Comm comm) {
  return MPI_Allreduce(data_of(own), all, count, theirs(type), theirs(op), theirs(comm));
}

int barrier(Comm comm) {
  return MPI_Barrier(theirs(comm));
}

int bcast(void* data, int count, Type type, int root, Comm comm) {
  return MPI_Bcast(data, count, theirs(type), root, theirs(comm));
}

int cancel(Request* request) {
  return MPI_Cancel(Slot(request));
}

int comm_dup(Comm of, Comm* made) {
  return MPI_Comm_dup(theirs(of), Slot(made));
}

int comm_free(Comm* comm) {
  return MPI_Comm_free(Slot(comm));
}

int comm_get_errhandler(Comm comm, Handler* handler) {
  return MPI_Comm_get_errhandler(theirs(comm), Slot(handler));
}

int comm_rank(Comm comm, int* rank) {
  return MPI_Comm_rank(theirs(comm), rank);
}

int comm_set_errhandler(Comm comm, Handler handler) {
  return MPI_Comm_set_errhandler(theirs(comm), theirs(handler));
}

int comm_size(Comm comm, int* size) {
  return MPI_Comm_size(theirs(comm), size);
}

int comm_split(Comm of, int color, int key, Comm* made) {
  return MPI_Comm_split(theirs(of), color == kUndefined ? MPI_UNDEFINED : color, key, Slot(made));
}

int comm_split_type(Comm of, int kind, int key, Info info, Comm* made) {
  return MPI_Comm_split_type(theirs(of), kind == kShared ? MPI_COMM_TYPE_SHARED : kind, key, theirs(info),
                             Slot(made));
}

int error_string(int code, char* text, int* length) {
  return MPI_Error_string(code, text, length);
}

int finalize() {
  return MPI_Finalize();
}

int finalized(int* flag) {
  return MPI_Finalized(flag);
}

int gather(const void* own, int count, Type type, void* all, int count_each, Type type_each, int root,
           Comm comm) {
  return MPI_Gather(data_of(own), count, theirs(type), all, count_each, theirs(type_each), root,
                    theirs(comm));
}

int gatherv(const void* own, int count, Type type, void* all, const int* counts, const int* starts,
            Type type_each, int root, Comm comm) {
  return MPI_Gatherv(data_of(own), count, theirs(type), all, counts, starts, theirs(type_each), root,
                     theirs(comm));
}

int get_count(const Status* status, Type type, int* count) {
  int size = 0;
  const int code = MPI_Type_size(theirs(type), &size);
  if (code == MPI_SUCCESS) *count = status->internal[0] / size;
  return code;
}

int get_library_version(char* text, int* length) {
  return MPI_Get_library_version(text, length);
}

int iallgather(const void* own, int count, Type type, void* all, int count_each, Type type_each, Comm comm,
               Request* request) {
  return MPI_Iallgather(data_of(own), count, theirs(type), all, count_each, theirs(type_each), theirs(comm),
                        Slot(request));
}

int iallgatherv(const void* own, int count, Type type, void* all, const int* counts, const int* starts,
                Type type_each, Comm comm, Request* request) {
  return MPI_Iallgatherv(data_of(own), count, theirs(type), all, counts, starts, theirs(type_each),
                         theirs(comm), Slot(request));
}

int ialltoall(const void* own, int count, Type type, void* all, int count_each, Type type_each, Comm comm,
              Request* request) {
  return MPI_Ialltoall(data_of(own), count, theirs(type), all, count_each, theirs(type_each), theirs(comm),
                       Slot(request));
}

int ibarrier(Comm comm, Request* request) {
  return MPI_Ibarrier(theirs(comm), Slot(request));
}

int ibcast(void* data, int count, Type type, int root, Comm comm, Request* request) {
  return MPI_Ibcast(data, count, theirs(type), root, theirs(comm), Slot(request));
}

int init_thread(int* argc, char*** argv, int wanted, int* provided) {
  int level = MPI_THREAD_SINGLE;
  const int code = MPI_Init_thread(argc, argv, level_of(wanted), &level);
  tell_level(level, provided);
  return code;
}

int initialized(int* flag) {
  return MPI_Initialized(flag);
}

int irecv(void* data, int count, Type type, int source, int tag, Comm comm, Request* request) {
  return MPI_Irecv(data, count, theirs(type), source_of(source), tag_of(tag), theirs(comm), Slot(request));
}

int isend(const void* data, int count, Type type, int to, int tag, Comm comm, Request* request) {
  return MPI_Isend(data, count, theirs(type), to, tag, theirs(comm), Slot(request));
}

int query_thread(int* provided) {
  int level = MPI_THREAD_SINGLE;
  const int code = MPI_Query_thread(&level);
  tell_level(level, provided);
  return code;
}

int request_free(Request* request) {
  return MPI_Request_free(Slot(request));
}

int test(Request* request, int* done, Status* status) {
  return MPI_Test(Slot(request), done, StatusSlot(status));
}

int wait(Request* request, Status* status) {
  return MPI_Wait(Slot(request), StatusSlot(status));
}

}  // namespace
}  // namespace lockstep::mpi

extern "C" __attribute__((visibility("default"))) const lockstep::mpi::PluginTable* lockstep_mpi_table() {
  using namespace lockstep::mpi;
  static const PluginTable table = {kPluginVersion,
                                    {
#define CALL(name, parameters) name,
#include "lockstep/mpi/calls.inc"
#undef CALL
                                    }};
  return &table;
}
