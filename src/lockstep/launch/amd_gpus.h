#pragma once
// AMD's GPUs, which lockstep does not compute on: who has some is told so.

#include <string>

namespace lockstep::launch {

/// How many the kernel's driver for computing (KFD, which ROCm stands on) shows. `root` stands for / in
/// tests.
int count_amd_gpus(const std::string& root = "");

}  // namespace lockstep::launch
