// PyTorch's DDP tutorial in C++: the twin of twin.py, which prints the same lines.
#include <lockstep/lockstep.h>
#include <torch/torch.h>

struct ToyModel : torch::nn::Module {
  torch::nn::Linear net1{register_module("net1", torch::nn::Linear(10, 10))};
  torch::nn::Linear net2{register_module("net2", torch::nn::Linear(10, 5))};
  torch::Tensor forward(const torch::Tensor& x) { return net2(torch::relu(net1(x))); }
};

int main() {
  return lockstep::run([] {
    lockstep::Session session;  // who am I, which device, which group
    torch::manual_seed(0);
    auto model = lockstep::ddp(ToyModel(), session);
    torch::optim::SGD optimizer(model->parameters(), 0.05);

    const auto inputs = torch::randn({64, 10});
    const auto labels = inputs.narrow(1, 0, 5) * 2;
    lockstep::DistributedSampler sampler(inputs.size(0), session);

    for (int epoch = 0; epoch < 20; ++epoch) {
      sampler.set_epoch(epoch);
      lockstep::Mean loss_mean;
      for (const auto& batch : torch::tensor(sampler.indices()).split(8)) {
        auto loss =
            torch::mse_loss(model->forward(inputs.index_select(0, batch)), labels.index_select(0, batch));
        optimizer.zero_grad();
        loss.backward();  // buckets are all-reduced while this runs
        optimizer.step();
        loss_mean.add(loss);
      }
      session.print("Epoch {} | Average Loss: {:.6f}", epoch, session.all_reduce(loss_mean));
    }
  });
}
