#pragma once
// Sums and the like over what the ranks show.
#include <nccl.h>

#include <cstdint>
#include <vector>

#include "nccl/comm.h"

namespace lab::nccl {

/// Each rank's numbers, of one type.
using Shown = std::vector<const char*>;

/// Host by host: first the ranks of each in their order, then the hosts, whose sums have crossed the network
/// in the type itself. So the bits differ from those of a sum over all ranks in a row, as they may with NCCL.
/// `out` may be the same memory as a rank's numbers.
void fold(ncclDataType_t type, ncclRedOp_t op, const Hosts& hosts, const Shown& shown, char* out,
          std::size_t count);
/// Each number by the factor, rounded to the type.
void scale(ncclDataType_t type, std::uint64_t factor_bits, char* numbers, std::size_t count);
void divide(ncclDataType_t type, int by, char* numbers, std::size_t count);

bool is_integer(ncclDataType_t type);
/// 1/n in the type.
std::uint64_t part_of_one(ncclDataType_t type, int n);

}  // namespace lab::nccl
