#pragma once
// An all-reduce whose answer is known beforehand, element by element, at any world size.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "lockstep/comm/group.h"

namespace lockstep::doctor {

/// Small whole numbers, others for each rank and round: their sums are exact in floats.
at::Tensor numbers_of(int64_t items, int round, int rank);

/// Empty where `sum` holds the numbers of all ranks of the world, added; else where it first does not.
std::string fault_in(const at::Tensor& sum, int round, int world);

/// Seconds of the quickest of so many all-reduces. Throws Error where a sum is wrong.
double time_of_sums(const ProcessGroup& group, at::Device device, int64_t bytes, int rounds);

/// What every rank's line carries of an all-reduce of so many bytes: NCCL's "bus bandwidth".
double bus_bandwidth(int64_t bytes, double seconds, int world);

}  // namespace lockstep::doctor
