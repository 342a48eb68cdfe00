#include "lockstep/models/pima_net.h"

#include "lockstep/models/model.h"

namespace lockstep {

PimaNet::PimaNet() : fc1_(8, 64), fc2_(64, 32), head_(32, 2) {
  register_module("fc1", fc1_);
  register_module("fc2", fc2_);
  register_module("head", head_);
}

torch::Tensor PimaNet::forward(const torch::Tensor& input) {
  const auto x = with_relu(*fc2_, with_relu(*fc1_, input));
  return alone(*head_, x);
}

std::vector<Part> PimaNet::chain() {
  return {{"fc1", [this](const torch::Tensor& x) { return with_relu(*fc1_, x); }},
          {"fc2", [this](const torch::Tensor& x) { return with_relu(*fc2_, x); }},
          {"head", [this](const torch::Tensor& x) { return alone(*head_, x); }}};
}

PimaNetBranch::PimaNetBranch() : branch_(32, 2) {
  register_module("branch", branch_);
}

LOCKSTEP_MODEL(pima_net, .help = "8 inputs, 64 and 32 units, two classes", .make = made<PimaNet>,
               .input_shape = {8}, .classes = 2)
LOCKSTEP_MODEL(pima_net_branch, .help = "pima_net with a branch that is never used",
               .make = made<PimaNetBranch>, .input_shape = {8}, .classes = 2)

}  // namespace lockstep
