#pragma once
// The processes of one way of `bench dp-vs-ddp`: one with all devices, or DDP's ranks as torchrun starts
// them.

#include <string>

#include "tools/bench/dp_vs_ddp.h"

namespace lockstep::bench {

/// Starts them, waits for all, and returns the first one's answer. Any one's error is thrown.
DpVsDdpFound run_way(const std::string& way, const DpVsDdp& wanted);

}  // namespace lockstep::bench
