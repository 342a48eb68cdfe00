#include <lockstep/workshop.h>

// A training run of four epochs that may be stopped after any epoch. A resumed run must end with the same results, bit
// for bit, as an uninterrupted one. The check runs it once in full and once in two parts, and compares.

struct Net : torch::nn::Module {
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(8, 16))};
  torch::nn::Dropout drop{register_module("drop", torch::nn::Dropout(0.2))};  // draws random numbers
  torch::nn::Linear head{register_module("head", torch::nn::Linear(16, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return head(drop(torch::relu(fc(x)))); }
};

// The state that the next step depends on, as a few numbers.
void show_state(const std::string& when, const torch::Tensor& weights, lockstep::Sgd& optimizer) {
  double momentum = 0;
  const auto held = optimizer.held_state();
  for (const auto& entry : held.toGenericDict()) {
    const auto of_one = entry.value().toGenericDict();
    if (of_one.contains("momentum_buffer") && of_one.at("momentum_buffer").isTensor())
      momentum += of_one.at("momentum_buffer").toTensor().abs().sum().item<double>();
  }
  const auto random = at::detail::getDefaultCPUGenerator().get_state().to(torch::kLong);
  const auto places = torch::arange(1, random.numel() + 1);
  lockstep::show(when + ": weights", weights.sum().item<double>());
  lockstep::show(when + ": momentum", momentum);
  lockstep::show(when + ": rate", optimizer.lr());
  lockstep::show(when + ": random", static_cast<double>((random * places).sum().item<int64_t>()));
}

void train(const std::string& file, int64_t epochs, int64_t stop_after) {
  lockstep::Session session;
  const auto pima = lockstep::data::pima("data/pima", session);
  torch::manual_seed(session.rank());
  auto model = lockstep::ddp(Net(), session);
  lockstep::Sgd optimizer(model->parameters(), {.lr = 0.05, .momentum = 0.9});
  const auto schedule = lockstep::make_schedule({.name = "cosine"}, optimizer, /*total_steps=*/0, epochs);
  lockstep::DistributedSampler sampler(pima.train.size(), session);
  auto batches = lockstep::loader(pima.train, sampler, {.batch_size = 32});

  // TODO: list everything that the next step depends on, load it if the file exists, and continue with the right epoch
  const lockstep::CheckpointParts parts{.model = model};
  const int64_t begin = 0;

  show_state("begin", model->parameters()[0].detach(), optimizer);
  for (int64_t epoch = begin; epoch < std::min(epochs, stop_after); ++epoch) {
    lockstep::show("epoch", static_cast<double>(epoch));
    lockstep::show("order", sampler.indices());
    lockstep::show("rate", optimizer.lr());
    for (auto& [x, y] : batches) {
      auto loss = torch::nn::functional::cross_entropy(model->forward(x), y.to(session.device()));
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
    }
    schedule->step();
    // TODO: which order is right?
    lockstep::save(file, session, parts);
    sampler.set_epoch(epoch + 1);
  }
  show_state("end", model->parameters()[0].detach(), optimizer);
  for (const auto& parameter : model->parameters()) lockstep::show("final", parameter.detach());
}

// FILE EPOCHS [STOP_AFTER]
int main(int argc, char** argv) {
  return lockstep::run([&] {
    const int64_t epochs = argc > 2 ? std::stoll(argv[2]) : 4;
    train(argc > 1 ? argv[1] : "resume.1.pt", epochs, argc > 3 ? std::stoll(argv[3]) : epochs);
  });
}
