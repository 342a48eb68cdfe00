// PyTorch's DDP tutorial in C++, on the Pima data: one process a rank, gradients averaged while backward
// runs.
//
//   mpirun -n 2 ./ddp            (or srun, or torchrun --no-python, or nothing at all)
#include <lockstep/lockstep.h>
#include <torch/torch.h>

struct PimaNet : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(8, 64))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(64, 32))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(32, 2))};

  torch::Tensor forward(const torch::Tensor& x) { return head(torch::relu(fc2(torch::relu(fc1(x))))); }
};

// The share of right answers over all ranks' samples.
double accuracy(PimaNet& net, const lockstep::data::Samples& samples, const lockstep::Session& session) {
  torch::NoGradGuard no_grad;
  const lockstep::ShardSampler shard(samples.size(), session.rank(), session.world());
  lockstep::Mean right;
  for (auto& [x, y] : lockstep::loader(samples, shard, {.batch_size = 256})) {
    const auto answers = net.forward(x.to(session.device())).argmax(1);
    right.add(answers.eq(y.to(session.device())));
  }
  return session.all_reduce(right);
}

int main() {
  return lockstep::run([] {
    lockstep::Session session;  // who am I, which device, which group
    const auto pima = lockstep::data::pima("data/pima", session);

    torch::manual_seed(0);
    auto model = lockstep::ddp(PimaNet(), session);
    lockstep::Sgd optimizer(model->parameters(), {.lr = 0.01, .momentum = 0.9});
    lockstep::DistributedSampler sampler(pima.train.size(), session, {.shuffle = true});
    auto batches = lockstep::loader(pima.train, sampler, {.batch_size = 32});

    for (int epoch = 0; epoch < 5; ++epoch) {
      sampler.set_epoch(epoch);
      lockstep::Mean loss_mean;
      for (auto& [x, y] : batches) {
        auto loss = torch::nn::functional::cross_entropy(model->forward(x), y.to(session.device()));
        optimizer.zero_grad();
        loss.backward();  // buckets are all-reduced while this runs
        optimizer.step();
        loss_mean.add(loss);
      }
      session.print("Epoch {} | Average Loss: {:.4f}", epoch, session.all_reduce(loss_mean));
    }
    session.print("Accuracy: {:.4f}", accuracy(*model->module(), pima.eval, session));
  });
}
