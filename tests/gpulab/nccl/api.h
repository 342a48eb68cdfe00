#pragma once
// How a function that stands in for one of NCCL's is marked.
#include <nccl.h>

#define NCCL_CALL extern "C" __attribute__((visibility("default")))
