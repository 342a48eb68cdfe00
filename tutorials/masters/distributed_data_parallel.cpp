//@ title      The course's own program: Pima on many ranks
//@ hint       Compare it with programs/single_process.cpp: diff programs/single_process.cpp exercises/distributed_data_parallel.cpp
//@ hint       The sampler's second argument defines this rank's share: session.
//@ hint       lockstep::ddp(PimaNet(), session) is the model with its gradients averaged.
//@ hint       This rank's mean is loss_mean.value(); session.all_reduce(loss_mean) is the mean over all ranks.
//@ unsolved   the same patients
#include <lockstep/workshop.h>

// The workshop's program: a network learns to predict diabetes from 8 measurements. Each step has 64 patients, divided
// over the ranks, and all ranks train one model. programs/single_process.cpp is the version for one process.

constexpr int64_t kBatch = 64;  // samples per step

struct PimaNet : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(8, 64))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(64, 32))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(32, 2))};

  torch::Tensor forward(const torch::Tensor& x) { return head(torch::relu(fc2(torch::relu(fc1(x))))); }
};

int main() {
  return lockstep::run([] {
    lockstep::Session session;
    const auto pima = lockstep::data::pima("data/pima", session);
    torch::manual_seed(0);
    //@ todo
    // TODO: one model, and a share of the patients for each rank. Now each rank trains its own model on all patients.
    auto model = std::make_shared<PimaNet>();
    lockstep::DistributedSampler sampler(pima.train.size(), {.rank = 0, .world = 1});
    //@ solution
    auto model = lockstep::ddp(PimaNet(), session);
    lockstep::DistributedSampler sampler(pima.train.size(), session);
    //@ wrong unwrapped: its own model
    auto model = std::make_shared<PimaNet>();
    lockstep::DistributedSampler sampler(pima.train.size(), session);
    //@ wrong unshared: the same patients
    auto model = lockstep::ddp(PimaNet(), session);
    lockstep::DistributedSampler sampler(pima.train.size(), {.rank = 0, .world = 1});
    //@ end
    auto batches = lockstep::loader(pima.train, sampler, {.batch_size = kBatch / session.world()});
    lockstep::Sgd optimizer(model->parameters(), {.lr = 0.01, .momentum = 0.9});

    for (int epoch = 0; epoch < 5; ++epoch) {
      sampler.set_epoch(epoch);
      lockstep::Mean loss_mean;
      for (auto& [x, y] : batches) {
        auto loss = torch::nn::functional::cross_entropy(model->forward(x), y.to(session.device()));
        optimizer.zero_grad();
        loss.backward();
        //@ todo
        optimizer.step();
        //@ solution
        optimizer.step();
        //@ wrong idle: the loss does not change
        // optimizer.step();
        //@ end
        loss_mean.add(loss);
      }
      //@ todo
      // TODO: log the mean over all ranks
      const double average = loss_mean.value();
      //@ solution
      const double average = session.all_reduce(loss_mean);
      //@ wrong own_loss: average the losses as well
      const double average = loss_mean.value();
      //@ end
      session.print("Epoch {} | Average Loss: {:.4f}", epoch, average);
      lockstep::show("average", average);
    }
    lockstep::show("first patients", std::vector<int64_t>{sampler.order()[0], sampler.order()[1]});
    lockstep::show("head.bias", model->parameters().back());
  });
}
