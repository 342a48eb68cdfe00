// A run that saves itself after each epoch and goes on where it was: stopped and started again, it ends with
// the same bits as a run that nobody stopped.
//
//   mpirun -n 2 ./resume CHECKPOINT EPOCHS [STOP_AFTER]
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <algorithm>
#include <string>

// Dropout draws random numbers in every step: they have to come back, too.
struct Net : torch::nn::Module {
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(8, 32))};
  torch::nn::Dropout drop{register_module("drop", torch::nn::Dropout(0.2))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(32, 2))};

  torch::Tensor forward(const torch::Tensor& x) { return head(drop(torch::relu(fc(x)))); }
};

void train(const std::string& checkpoint, int64_t epochs, int64_t stop_after) {
  lockstep::Session session;
  const auto pima = lockstep::data::pima("data/pima", session);

  torch::manual_seed(session.rank());
  auto model = lockstep::ddp(Net(), session);
  lockstep::Adam optimizer(model->parameters(), {.lr = 1e-3});
  const auto schedule = lockstep::make_schedule({.name = "cosine"}, optimizer, /*total_steps=*/0, epochs);
  lockstep::DistributedSampler sampler(pima.train.size(), session, {.shuffle = true});
  auto batches = lockstep::loader(pima.train, sampler, {.batch_size = 32});

  const lockstep::CheckpointParts parts{
      .model = model, .optimizer = &optimizer, .schedule = schedule.get(), .sampler = &sampler};
  if (lockstep::load_if_there(checkpoint, session, parts))
    session.print("Going on with epoch {}", sampler.epoch());

  for (auto epoch = sampler.epoch(); epoch < std::min(epochs, stop_after); ++epoch) {
    lockstep::Mean loss_mean;
    for (auto& [x, y] : batches) {
      auto loss = torch::nn::functional::cross_entropy(model->forward(x), y.to(session.device()));
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      loss_mean.add(loss);
    }
    schedule->step();
    session.print("Epoch {} | Average Loss: {:.8f}", epoch, session.all_reduce(loss_mean));
    sampler.set_epoch(epoch + 1);
    lockstep::save(checkpoint, session, parts);  // rank 0 writes it, whole or not at all
  }
}

int main(int argc, char** argv) {
  return lockstep::run([&] {
    if (argc < 3 || argc > 4)
      throw lockstep::InputError("two or three arguments are wanted", "",
                                 "resume CHECKPOINT EPOCHS [STOP_AFTER]");
    const int64_t epochs = std::stoll(argv[2]);
    train(argv[1], epochs, argc == 4 ? std::stoll(argv[3]) : epochs);
  });
}
