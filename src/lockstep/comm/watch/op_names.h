#pragma once
// What a person calls each collective.

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <string>

namespace lockstep::comm {

std::string op_name(c10d::OpType type);

}  // namespace lockstep::comm
