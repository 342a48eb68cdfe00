//@ title      A model from Python
//@ hint       Inspect both files: lockstep model check models/line.pt2, and models/line.eval.pt2. How do they differ?
//@ hint       lockstep::load_exported(path, eval_path) takes the file for training first, then the one for evaluation.
//@ hint       It is a torch::nn::Module, so lockstep::ddp(net, session) wraps it. Call the result like the model here.
//@ hint       model->eval() switches to the second file's graph, and model->train() back to the first one's. Which one does the next step need?
//@ unsolved   a model of its own
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

    //@ todo
    // TODO: load both files
    const auto net = lockstep::load_exported(train_file);
    //@ solution
    const auto net = lockstep::load_exported(train_file, eval_file);
    //@ wrong no_twin
    const auto net = lockstep::load_exported(train_file);
    //@ wrong swapped
    const auto net = lockstep::load_exported(eval_file, train_file);
    //@ wrong eval_alone
    const auto net = lockstep::load_exported(eval_file);
    //@ end

    //@ todo
    // TODO: each rank trains its own model
    const auto model = net;
    //@ solution
    const auto model = lockstep::ddp(net, session);
    //@ wrong unwrapped: its own model
    const auto model = net;
    //@ wrong inner: its own model
    const auto model = lockstep::ddp(net, session)->module();
    //@ end
    lockstep::Sgd optimizer(model->parameters(), {.lr = 0.5});
    for (int epoch = 0; epoch < 4; ++epoch) {
      optimizer.zero_grad();
      loss_of(*model, x.index_select(0, mine), y.index_select(0, mine)).backward();
      optimizer.step();
      //@ todo
      // TODO: the model is still in training mode
      evaluate(*model, x, y);
      //@ solution
      model->eval();
      evaluate(*model, x, y);
      model->train();
      //@ wrong never_eval: in training mode
      evaluate(*model, x, y);
      //@ wrong stays_eval
      model->eval();
      evaluate(*model, x, y);
      //@ wrong turned: in training mode
      model->train();
      evaluate(*model, x, y);
      model->eval();
      //@ end
    }
    lockstep::show("slope", model->parameters()[0]);
  });
}
