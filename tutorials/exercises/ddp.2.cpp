#include <lockstep/workshop.h>

// What DDP does in every backward(), but without DDP: afterwards each rank's gradients are the mean over all ranks.
// parameter.grad() is the gradient. In-place functions (with a _ at the end of the name, such as div_) on that tensor
// change the gradient.

void average_gradients(const std::vector<torch::Tensor>& parameters, const lockstep::Session& session) {
  // TODO
  (void)parameters, (void)session;
}

int main() {
  return lockstep::run([] {
    lockstep::Session session;
    const auto weight = torch::tensor({1., -1.}).requires_grad_();
    const auto bias = torch::tensor(0.5).requires_grad_();
    const auto x = torch::tensor({1. + session.rank(), 2.});  // a different sample on each rank
    (weight.dot(x) + bias).square().backward();
    average_gradients({weight, bias}, session);
    lockstep::show("gradient of weight", weight.grad());
    lockstep::show("gradient of bias", bias.grad());
    lockstep::show("weight", weight);
  });
}
