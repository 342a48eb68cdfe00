#include <lockstep/workshop.h>

// A line: weight * x + bias. One process without threads: the devices take turns.
struct Line {
  at::Tensor weight = torch::zeros({}, torch::dtype(at::kDouble).requires_grad(true));
  at::Tensor bias = torch::zeros({}, torch::dtype(at::kDouble).requires_grad(true));
};

// Before the forward: copies the first model's parameters to the replica.
void refresh(Line& replica, const Line& first) {
  const torch::NoGradGuard no_gradient;  // autograd must not record the copy
  // TODO: copy both parameters
  (void)replica;
  (void)first;
}

// After the backward: each replica has the gradients of the mean of its own part in weight.grad() and bias.grad(), and
// samples[i] is the number of its samples. Sets the first model's gradients to those of the whole batch's mean.
void reduce(Line& first, const std::vector<Line>& replicas, const std::vector<int64_t>& samples) {
  const auto all = static_cast<double>(std::accumulate(samples.begin(), samples.end(), int64_t{0}));
  first.weight.mutable_grad() = torch::zeros({}, at::kDouble);
  first.bias.mutable_grad() = torch::zeros({}, at::kDouble);
  for (size_t i = 0; i < samples.size(); ++i) {
    // TODO: add replica i's gradients, weighted by its share of the batch
    (void)replicas;
    (void)all;
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
