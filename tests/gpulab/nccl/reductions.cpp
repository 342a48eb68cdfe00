#include "nccl/reductions.h"

#include <cstring>

#include "nccl/api.h"
#include "nccl/arithmetic.h"
#include "nccl/errors.h"
#include "nccl/handles.h"
#include "nccl/numbers.h"

namespace lab::nccl {
namespace {

Reduction sum_of_scaled(const Scalar& factor) {
  return {.op = ncclSum, .scales = true, .factor = factor, .divide_by = 1};
}

// As NCCL's: a mean of floating numbers is the sum of each by 1/n, one of integers is divided behind the sum.
Reduction mean(const Comm& comm, ncclDataType_t type) {
  if (is_integer(type)) return {.op = ncclSum, .scales = false, .factor = {}, .divide_by = comm.size};
  return sum_of_scaled({part_of_one(type, comm.size), nullptr});
}

}  // namespace

ncclResult_t resolve(Comm& comm, ncclRedOp_t op, ncclDataType_t type, Reduction& reduction) {
  if (op == ncclAvg) {
    reduction = mean(comm, type);
    return ncclSuccess;
  }
  if (op >= 0 && op < ncclAvg) {
    reduction = Reduction{};
    reduction.op = op;
    return ncclSuccess;
  }
  const std::lock_guard lock(comm.scalars_mutex);
  const auto found = comm.scalars.find(op);
  if (found == comm.scalars.end())
    return refuse(ncclInvalidArgument,
                  formatted("reduction operation %d is unknown to this communicator", op));
  reduction = sum_of_scaled(found->second);
  return ncclSuccess;
}

}  // namespace lab::nccl

NCCL_CALL ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                                ncclScalarResidence_t residence, ncclComm_t handle) {
  const auto comm = lab::nccl::find(handle);
  if (!comm) return lab::nccl::refuse_handle("ncclRedOpCreatePreMulSum");
  lab::nccl::Scalar made;
  if (residence == ncclScalarDevice)
    made.on_device = scalar;
  else
    std::memcpy(&made.bits, scalar, lab::nccl::size_of(type));
  const std::lock_guard lock(comm->scalars_mutex);
  *op = static_cast<ncclRedOp_t>(comm->next_scalar);
  comm->scalars[comm->next_scalar++] = made;
  return ncclSuccess;
}

NCCL_CALL ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t handle) {
  const auto comm = lab::nccl::find(handle);
  if (!comm) return lab::nccl::refuse_handle("ncclRedOpDestroy");
  const std::lock_guard lock(comm->scalars_mutex);
  comm->scalars.erase(op);
  return ncclSuccess;
}
