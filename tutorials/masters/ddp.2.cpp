//@ title      Average gradients by hand
//@ hint       After backward() each parameter holds its gradient: parameter.grad(). Which call combines the gradients of all ranks?
//@ hint       session.team().sum(tensors) sums a std::vector<torch::Tensor> over the ranks, in place.
//@ hint       Fill the vector with every parameter's grad(), sum, then divide each by session.world(): grad.div_(...).
#include <lockstep/workshop.h>

// What DDP does in every backward(), but without DDP: afterwards each rank's gradients are the mean over all ranks.
// parameter.grad() is the gradient. In-place functions (with a _ at the end of the name, such as div_) on that tensor
// change the gradient.

void average_gradients(const std::vector<torch::Tensor>& parameters, const lockstep::Session& session) {
  //@ todo
  // TODO
  (void)parameters, (void)session;
  //@ solution
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : parameters) gradients.push_back(parameter.grad());
  session.team().sum(gradients);
  for (auto& gradient : gradients) gradient.div_(session.world());
  //@ wrong sum
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : parameters) gradients.push_back(parameter.grad());
  session.team().sum(gradients);
  //@ wrong two
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : parameters) gradients.push_back(parameter.grad());
  session.team().sum(gradients);
  for (auto& gradient : gradients) gradient.div_(2);
  //@ wrong weights
  std::vector<torch::Tensor> values(parameters);
  torch::NoGradGuard no_grad;
  session.team().sum(values);
  for (auto& value : values) value.div_(session.world());
  //@ wrong one
  std::vector<torch::Tensor> gradients = {parameters[0].grad()};
  session.team().sum(gradients);
  gradients[0].div_(session.world());
  //@ wrong unsummed: ->wait()
  for (const auto& parameter : parameters) parameter.grad().div_(session.world());
  //@ right tensors
  for (const auto& parameter : parameters) {
    session.all_reduce(parameter.grad());
    parameter.grad().div_(session.world());
  }
  //@ wrong twice: divided twice
  for (const auto& parameter : parameters) {
    parameter.grad().div_(session.world());
    session.all_reduce(parameter.grad());
    parameter.grad().div_(session.world());
  }
  //@ wrong first: only rank 0
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : parameters) gradients.push_back(parameter.grad());
  session.team().sum(gradients);
  if (session.rank() == 0)
    for (auto& gradient : gradients) gradient.div_(session.world());
  //@ end
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
