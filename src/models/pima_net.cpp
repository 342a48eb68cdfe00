#include "models/pima_net.h"

namespace lockstep {

PimaNet::PimaNet() : fc1(8, 64), fc2(64, 32), head(32, 2) {
  register_module("fc1", fc1);
  register_module("fc2", fc2);
  register_module("head", head);
}

torch::Tensor PimaNet::forward(const torch::Tensor& input) {
  const auto x = torch::relu(fc1->forward(input));
  return head->forward(torch::relu(fc2->forward(x)));
}

PimaNetBranch::PimaNetBranch() : branch(32, 2) {
  register_module("branch", branch);
}

}  // namespace lockstep
