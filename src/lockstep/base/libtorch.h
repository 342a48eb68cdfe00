#pragma once
// What differs between the libtorch versions that lockstep knows. Nothing else in the sources asks for a
// version.

#include <torch/version.h>

#define LOCKSTEP_TORCH (TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR)
#if LOCKSTEP_TORCH != 207 && LOCKSTEP_TORCH != 211
#error "lockstep knows libtorch 2.7 and 2.11 only: add this version here"
#endif

// Backend::getBackendOptions, Backend::setTimeout and Store::clone are virtual since 2.8 or later. The
// Reducer's constructor grew an argument or two in 2.9 and in 2.11.
#if LOCKSTEP_TORCH >= 211
#define LOCKSTEP_LATE_OVERRIDE override
#define LOCKSTEP_REDUCER_TAIL(skip_unused, caps) , skip_unused, /*use_python_reducer=*/false, caps
#else
#define LOCKSTEP_LATE_OVERRIDE
#define LOCKSTEP_REDUCER_TAIL(skip_unused, caps)
#endif

namespace lockstep::base {
/// skip_all_reduce_unused_params and bucket_cap_mb_list
constexpr bool kReducerTakesTail = LOCKSTEP_TORCH >= 211;
/// Whether the TCPStore over libuv takes over a socket that listens already: 2.7's refuses.
constexpr bool kUvStoreTakesSocket = LOCKSTEP_TORCH >= 211;
}  // namespace lockstep::base
