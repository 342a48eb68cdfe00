//@ title      A step of DataParallel by hand
//@ hint       The optimizer updates only the first model. Which parameters do the replicas use in the next step?
//@ hint       In refresh(), call replica.weight.copy_(first.weight) for each parameter.
//@ hint       Each part's gradient is the gradient of the mean over its own samples. Which share of the batch is that part?
//@ hint       In reduce(), first.weight.mutable_grad() is the sum of replica.weight.grad() * (its samples / all samples).
#include <lockstep/workshop.h>

// A line: weight * x + bias. One process without threads: the devices take turns.
struct Line {
  at::Tensor weight = torch::zeros({}, torch::dtype(at::kDouble).requires_grad(true));
  at::Tensor bias = torch::zeros({}, torch::dtype(at::kDouble).requires_grad(true));
};

// Before the forward: copies the first model's parameters to the replica.
void refresh(Line& replica, const Line& first) {
  const torch::NoGradGuard no_gradient;  // autograd must not record the copy
  //@ todo
  // TODO: copy both parameters
  (void)replica;
  (void)first;
  //@ solution
  replica.weight.copy_(first.weight);
  replica.bias.copy_(first.bias);
  //@ wrong stale
  (void)replica;
  (void)first;
  //@ wrong shared: share the first model
  replica.weight.set_data(first.weight);
  replica.bias.set_data(first.bias);
  //@ wrong same: share the first model
  replica = first;
  //@ end
}

// After the backward: each replica has the gradients of the mean of its own part in weight.grad() and bias.grad(), and
// samples[i] is the number of its samples. Sets the first model's gradients to those of the whole batch's mean.
void reduce(Line& first, const std::vector<Line>& replicas, const std::vector<int64_t>& samples) {
  const auto all = static_cast<double>(std::accumulate(samples.begin(), samples.end(), int64_t{0}));
  first.weight.mutable_grad() = torch::zeros({}, at::kDouble);
  first.bias.mutable_grad() = torch::zeros({}, at::kDouble);
  for (size_t i = 0; i < samples.size(); ++i) {
    //@ todo
    // TODO: add replica i's gradients, weighted by its share of the batch
    (void)replicas;
    (void)all;
    //@ solution
    const double share = samples[i] / all;
    first.weight.mutable_grad() += replicas[i].weight.grad() * share;
    first.bias.mutable_grad() += replicas[i].bias.grad() * share;
    //@ wrong first
    (void)all;
    if (i > 0) continue;
    first.weight.mutable_grad() += replicas[i].weight.grad();
    first.bias.mutable_grad() += replicas[i].bias.grad();
    //@ wrong sum
    (void)all;
    first.weight.mutable_grad() += replicas[i].weight.grad();
    first.bias.mutable_grad() += replicas[i].bias.grad();
    //@ wrong mean
    (void)all;
    first.weight.mutable_grad() += replicas[i].weight.grad() / static_cast<double>(samples.size());
    first.bias.mutable_grad() += replicas[i].bias.grad() / static_cast<double>(samples.size());
    //@ end
  }
}

void step(Line& first, std::vector<Line>& replicas, const std::vector<at::Tensor>& parts) {
  std::vector<int64_t> samples;
  for (size_t i = 0; i < parts.size(); ++i) {
    auto& replica = replicas[i];
    refresh(replica, first);
    for (auto* parameter : {&replica.weight, &replica.bias}) parameter->mutable_grad().reset();
    const auto& x = parts[i];
    (replica.weight * x + replica.bias - x * x).square().mean().backward();
    samples.push_back(x.size(0));
  }
  reduce(first, replicas, samples);
  lockstep::Sgd({first.weight, first.bias}, {.lr = 0.01}).step();
}

int main() {
  return lockstep::run([] {
    for (const int64_t devices : {2, 3}) {
      Line first;
      std::vector<Line> replicas(static_cast<size_t>(devices));
      int64_t shared = 0;
      const auto parts = torch::arange(1, 6, at::kDouble).chunk(devices);  // 5 samples: 1, 2, 3, 4, 5
      for (int i = 0; i < 3; ++i) {
        step(first, replicas, parts);
        lockstep::show("line", std::vector<double>{first.weight.item<double>(), first.bias.item<double>()});
      }
      for (const auto& replica : replicas)
        shared += replica.weight.is_alias_of(first.weight) + replica.bias.is_alias_of(first.bias);
      lockstep::show("parameters in the first model's memory", std::vector{shared});
    }
  });
}
