#include <lockstep/workshop.h>

#include <lockstep/models/exported.h>

// Somebody has written a line in Python (models/line.py) and exported it twice: as it is in training, where 0.5 is added
// to it, and as it is in evaluation, where it is not. Train it on all ranks together, and evaluate it after each epoch.

// How far from y the model is.
template <class Model>
torch::Tensor loss_of(Model& model, const torch::Tensor& x, const torch::Tensor& y) {
  const auto found = model.forward(x);
  return (found - y.to(found.device())).square().mean();
}

// The loss of all points, from which nothing is learned, and whether the model believes that it is in training.
template <class Model>
void evaluate(Model& model, const torch::Tensor& x, const torch::Tensor& y) {
  const torch::NoGradGuard no_grad;
  lockstep::show("in training", model.is_training());
  lockstep::show("evaluation", loss_of(model, x, y));
}

// TRAIN_FILE EVAL_FILE
int main(int count, char** words) {
  return lockstep::run([&] {
    const std::string train_file = count > 1 ? words[1] : "models/line.pt2";
    const std::string eval_file = count > 2 ? words[2] : "models/line.eval.pt2";
    lockstep::Session session;
    lockstep::DistributedSampler sampler(12, session, {.shuffle = false});
    const auto mine = torch::tensor(sampler.indices());
    const auto x = torch::arange(12) / 10., y = 3 * x + torch::sin(5 * x);

    // TODO: there are two files
    const auto net = lockstep::load_exported(train_file);

    // TODO: each rank has a model of its own
    const auto model = net;
    lockstep::Sgd optimizer(model->parameters(), {.lr = 0.5});
    for (int epoch = 0; epoch < 4; ++epoch) {
      optimizer.zero_grad();
      loss_of(*model, x.index_select(0, mine), y.index_select(0, mine)).backward();
      optimizer.step();
      // TODO: this is still the model in training
      evaluate(*model, x, y);
    }
    lockstep::show("slope", model->parameters()[0]);
  });
}
