// A library that has the calls of the MPI standard and nothing behind them. PRETEND_ABI is what it says of
// the standard's ABI: 1 has it, -1 knows the question and has another. PRETEND_LACKS_ONE: without one call.
#include <cstdlib>
#include <cstring>

#define VISIBLE __attribute__((visibility("default")))

extern "C" {

VISIBLE int pretend_abi(int* major, int* minor) {
  const char* abi = std::getenv("PRETEND_ABI");
  *major = abi ? std::atoi(abi) : 1;
  *minor = 0;
  return 0;
}

VISIBLE int pretend_version(char* text, int* length) {
  const char* version = std::getenv("PRETEND_VERSION");
  std::strcpy(text, version ? version : "Pretend MPI v1.2");
  *length = static_cast<int>(std::strlen(text));
  return 0;
}

// every other call
VISIBLE int pretend_nothing() {
  return 0;
}
}

#define IS(call, function) ".globl " call "\n.set " call "," function "\n"
#define NOTHING(calls) __asm__(".irp call," calls "\n" IS("MPI_\\call", "pretend_nothing") ".endr\n")

__asm__(IS("PMPI_Init_thread", "pretend_nothing") IS("MPI_Abi_get_version", "pretend_abi"));
__asm__(IS("MPI_Get_library_version", "pretend_version"));
NOTHING("Abort,Allgather,Allgatherv,Allreduce,Barrier,Bcast,Cancel,Comm_dup,Comm_free");
NOTHING("Comm_get_errhandler,Comm_rank,Comm_set_errhandler,Comm_size,Comm_split");
NOTHING("Comm_split_type,Error_string,Finalize,Finalized,Gather,Gatherv,Get_count,Iallgather,Iallgatherv");
NOTHING("Ialltoall,Ibarrier,Ibcast,Init_thread,Initialized,Irecv");
NOTHING("Isend,Query_thread,Request_free,Test,Type_size");
#ifndef PRETEND_LACKS_ONE
NOTHING("Wait");
#endif
