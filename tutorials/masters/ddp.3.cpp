//@ title      A branch that not every rank uses
//@ hint       Build the program and run it on 2 ranks yourself: the error names the parameter and the remedy.
//@ hint       DDP waits for a gradient of every parameter unless an option says that some may be missing. See the table of options in lockstep's docs/reference/ddp.md.
//@ hint       lockstep::ddp(Net(), session, {.find_unused_parameters = true})
#include <lockstep/workshop.h>

// A net has a separate weight for rare samples. In each step only one rank has such a sample; the loss of the other
// ranks does not depend on that weight. Fix the call of ddp(), so that both weights are trained.

struct Net : torch::nn::Module {
  torch::Tensor common = register_parameter("common", torch::ones(1));
  torch::Tensor rare = register_parameter("rare", torch::ones(1));
  torch::Tensor forward(double x, bool is_rare) { return is_rare ? common * x + rare * x : common * x; }
};

int main() {
  return lockstep::run([] {
    lockstep::Session session;
    //@ todo
    // TODO: which option does this need?
    auto model = lockstep::ddp(Net(), session);
    //@ solution
    auto model = lockstep::ddp(Net(), session, {.find_unused_parameters = true});
    //@ wrong frozen
    Net net;
    net.rare.requires_grad_(false);
    auto model = lockstep::ddp(std::move(net), session);
    //@ wrong ignored: an ignored weight
    auto model = lockstep::ddp(Net(), session, {.ignore = {"rare"}});
    //@ wrong static: unused in every step
    auto model = lockstep::ddp(Net(), session, {.static_graph = true});
    //@ end
    lockstep::Sgd optimizer(model->parameters(), {.lr = 0.1});
    for (int step = 0; step < 4; ++step) {
      const bool is_rare = step % session.world() == session.rank();
      const auto error = model->forward(1.0 + session.rank(), is_rare) - 1;
      model->zero_grad();
      error.square().sum().backward();
      optimizer.step();
    }
    lockstep::show("common", model->module()->common);
    lockstep::show("rare", model->module()->rare);
  });
}
