#pragma once
// Sends and receives: pieces through a channel from rank to rank. A send of one piece ends without its
// receiver.
#include <nccl.h>

#include <vector>

#include "nccl/comm.h"

namespace lab::nccl {

struct Point {
  bool sends = false;
  char* data = nullptr;
  std::size_t bytes = 0;
  ncclDataType_t type = ncclFloat32;
  int peer = 0;
};

/// All of them at once; those of one pair in one direction in their order.
void run(Comm& comm, const std::vector<Point>& points);

}  // namespace lab::nccl
