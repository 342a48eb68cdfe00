#pragma once
// Collectives over the board: each rank shows a part, and when all have shown theirs each takes what it
// needs.
#include <nccl.h>

#include "nccl/comm.h"

namespace lab::nccl {

enum class Kind { all_reduce, broadcast, reduce, all_gather, reduce_scatter };
const char* name_of(Kind kind);

/// What is done to numbers before, between and after.
struct Reduction {
  ncclRedOp_t op = ncclSum;  // between
  bool scales = false;       // before
  Scalar factor;
  int divide_by = 1;  // after
};

struct Collective {
  Kind kind = Kind::all_reduce;
  const char* from = nullptr;
  char* to = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  Reduction reduction;
  int root = 0;
  long number = 0;  // among those of this process; 0 for one of a graph
};

void run(Comm& comm, const Collective& collective);

}  // namespace lab::nccl
