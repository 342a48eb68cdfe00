// Through MPI's profiling interface: the program itself knows nothing of pretended nodes.
#include <mpi.h>

#include "comm/mpi/ranks/nodes.h"

namespace lockstep::test {

int PretendNodes::ranks_per_node = 0;

}  // namespace lockstep::test

extern "C" int MPI_Comm_split_type(MPI_Comm all, int type, int key, MPI_Info info, MPI_Comm* node) {
  const int per_node = lockstep::test::PretendNodes::ranks_per_node;
  if (per_node == 0) return PMPI_Comm_split_type(all, type, key, info, node);
  MPI_Comm host = MPI_COMM_NULL;
  if (const int code = PMPI_Comm_split_type(all, type, key, info, &host); code != MPI_SUCCESS) return code;
  int rank = 0;
  PMPI_Comm_rank(host, &rank);
  const int code = PMPI_Comm_split(host, per_node > 0 ? rank / per_node : rank % -per_node, key, node);
  PMPI_Comm_free(&host);
  return code;
}
