#pragma once
// What is called between ncclGroupStart and ncclGroupEnd begins at its end, together. A call outside is a
// group of one.
#include <nccl.h>

#include <functional>

#include "nccl/collectives.h"
#include "nccl/points.h"

namespace lab::nccl {

/// Runs the call inside a group; its error is that of the group too.
ncclResult_t in_group(const std::function<ncclResult_t()>& call);

// for calls inside of one
void add(const CommPtr& comm, cudaStream_t stream, const Collective& collective);
void add(const CommPtr& comm, cudaStream_t stream, const Point& point);
/// What a host waits in, such as a meeting: all of a group at the same time, in threads of their own.
void add_meeting(std::function<ncclResult_t()> meeting);
/// Something goes on behind the caller's back: the group's result is ncclInProgress.
void add_background();

}  // namespace lab::nccl
