// Preloaded, through MPI's profiling interface: the job knows one node, as it is (the first call), and the
// mpi backend (the next) takes every TEST_RANKS_PER_NODE of its ranks for a node of their own.
#include <mpi.h>
#include <stdlib.h>

int MPI_Comm_split_type(MPI_Comm all, int type, int key, MPI_Info info, MPI_Comm* node) {
  static int calls = 0;
  if (++calls == 1) return PMPI_Comm_split_type(all, type, key, info, node);
  MPI_Comm host;
  int rank = 0;
  int code = PMPI_Comm_split_type(all, type, key, info, &host);
  if (code != MPI_SUCCESS) return code;
  PMPI_Comm_rank(host, &rank);
  code = PMPI_Comm_split(host, rank / atoi(getenv("TEST_RANKS_PER_NODE")), key, node);
  PMPI_Comm_free(&host);
  return code;
}
