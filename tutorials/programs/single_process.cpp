#include <lockstep/workshop.h>

// The workshop's program for one process: a network learns from 8 measurements who has diabetes, 64 patients a step.
// exercises/distributed_data_parallel.cpp is the same for many.

constexpr int64_t kBatch = 64;  // a step

struct PimaNet : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(8, 64))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(64, 32))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(32, 2))};

  torch::Tensor forward(const torch::Tensor& x) { return head(torch::relu(fc2(torch::relu(fc1(x))))); }
};

int main() {
  return lockstep::run([] {
    const auto pima = lockstep::data::pima("data/pima");
    torch::manual_seed(0);
    auto model = std::make_shared<PimaNet>();
    lockstep::DistributedSampler sampler(pima.train.size(), {});
    auto batches = lockstep::loader(pima.train, sampler, {.batch_size = kBatch});
    lockstep::Sgd optimizer(model->parameters(), {.lr = 0.01, .momentum = 0.9});

    for (int epoch = 0; epoch < 5; ++epoch) {
      sampler.set_epoch(epoch);
      lockstep::Mean loss_mean;
      for (auto& [x, y] : batches) {
        auto loss = torch::nn::functional::cross_entropy(model->forward(x), y);
        optimizer.zero_grad();
        loss.backward();
        optimizer.step();
        loss_mean.add(loss);
      }
      const double average = loss_mean.value();
      std::cout << lockstep::format("Epoch {} | Average Loss: {:.4f}", epoch, average) << std::endl;
      lockstep::show("average", average);
    }
    lockstep::show("first patients", std::vector<int64_t>{sampler.order()[0], sampler.order()[1]});
    lockstep::show("head.bias", model->parameters().back());
  });
}
