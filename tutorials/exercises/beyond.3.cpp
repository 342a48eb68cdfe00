#include <lockstep/workshop.h>

#include <lockstep/models/exported.h>

// A line, written in Python (models/line.py) and exported twice: in training mode, which adds 0.5, and in evaluation
// mode, which does not. Train it on all ranks together, and evaluate it after each epoch.

// The distance of the model's output from y.
template <class Model>
torch::Tensor loss_of(Model& model, const torch::Tensor& x, const torch::Tensor& y) {
  const auto found = model.forward(x);
  return (found - y.to(found.device())).square().mean();
}

// The loss of all points, without training, and whether the model is in training mode.
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

    // TODO: load both files
    const auto net = lockstep::load_exported(train_file);

    // TODO: each rank trains its own model
    const auto model = net;
    lockstep::Sgd optimizer(model->parameters(), {.lr = 0.5});
    for (int epoch = 0; epoch < 4; ++epoch) {
      optimizer.zero_grad();
      loss_of(*model, x.index_select(0, mine), y.index_select(0, mine)).backward();
      optimizer.step();
      // TODO: the model is still in training mode
      evaluate(*model, x, y);
    }
    lockstep::show("slope", model->parameters()[0]);
  });
}
