// Two ranks with different data train one layer; afterwards their weights are equal and the loss is lower.
#include <lockstep/lockstep.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cstdio>

namespace {

class Line : public lockstep::Net {
 public:
  Line() : layer_(register_module("layer", torch::nn::Linear(4, 1))) {}
  torch::Tensor forward(const torch::Tensor& input) override { return layer_(input); }

 private:
  torch::nn::Linear layer_;
};

}  // namespace

int main() {
  lockstep::Runtime runtime;
  auto group = lockstep::comm::connect(runtime, {});
  torch::manual_seed(0);
  auto model = lockstep::ddp(std::make_shared<Line>(), group);
  torch::optim::SGD optimizer(model->parameters(), 0.1);

  lockstep::DistributedSampler sampler(64, {.rank = runtime.job().rank, .world = runtime.job().world});
  const auto inputs = torch::randn({64, 4});
  const auto targets = inputs.sum(1, /*keepdim=*/true);
  const auto mine = torch::tensor(sampler.indices());
  double first = 0, last = 0;
  for (int step = 0; step < 50; ++step) {
    optimizer.zero_grad();
    auto loss = torch::nn::functional::mse_loss(model->forward(inputs.index_select(0, mine)),
                                                targets.index_select(0, mine));
    loss.backward();
    optimizer.step();
    (step == 0 ? first : last) = loss.item<double>();
  }

  std::string weights;
  for (const auto& parameter : model->parameters())
    for (int64_t i = 0; i < parameter.numel(); ++i)
      weights += std::to_string(parameter.view(-1)[i].item<float>()) + " ";
  const auto all = runtime.all_gather(weights);
  if (runtime.job().rank == 0)
    std::printf("world %d, weights %s, loss %s\n", runtime.job().world,
                all.front() == all.back() ? "equal" : "different", last < first / 100 ? "fell" : "stayed");
  return all.front() == all.back() && last < first / 100 ? 0 : 1;
}
