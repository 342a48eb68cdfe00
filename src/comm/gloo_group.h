#pragma once
// gloo on CPU: PyTorch's own backend, with its interface chosen and checked.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "comm/group.h"
#include "comm/store.h"

namespace lockstep::comm {

c10::intrusive_ptr<c10d::Backend> make_gloo(const StorePtr& store, const Job& job,
                                            const GroupSettings& settings);

}  // namespace lockstep::comm
