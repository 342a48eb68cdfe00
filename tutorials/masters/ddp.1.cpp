//@ title      From one process to many
//@ hint       Three things are missing: the session, this rank's share of the rows, and a model whose gradients are averaged.
//@ hint       Begin with lockstep::Session session; and pass it to the sampler and to lockstep::ddp(...).
//@ hint       lockstep::ddp(Line(), session) returns a pointer with forward() and parameters(), like the one here.
//@ unsolved   as if it were the only rank
#include <lockstep/workshop.h>

// One process fits a line to 12 points. Change it so that several processes do this together, with the same result:
// each has a share of the points, and their gradients are averaged in every step. Keep the line that says how many
// points a rank has seen.

struct Line : torch::nn::Module {
  torch::Tensor slope = register_parameter("slope", torch::zeros(1));
  torch::Tensor forward(const torch::Tensor& x) { return slope * x; }
};

int main() {
  return lockstep::run([] {
    const auto x = torch::arange(12) / 10., y = 3 * x + torch::sin(5 * x);

    //@ todo
    // TODO: join the job, and use only this rank's share of the points
    lockstep::DistributedSampler sampler(12, {.rank = 0, .world = 1, .shuffle = false});
    //@ solution
    lockstep::Session session;
    lockstep::DistributedSampler sampler(12, session, {.shuffle = false});
    //@ wrong same: all ranks take the points of rank 0
    lockstep::Session session;
    lockstep::DistributedSampler sampler(12, {.rank = 0, .world = session.world(), .shuffle = false});
    //@ wrong everything: all 12 points
    lockstep::Session session;
    lockstep::DistributedSampler sampler(12, {.rank = 0, .world = 1, .shuffle = false});
    //@ end
    const auto mine = torch::tensor(sampler.indices());

    //@ todo
    // TODO: wrap the model
    auto model = std::make_shared<Line>();
    //@ solution
    auto model = lockstep::ddp(Line(), session);
    //@ wrong unwrapped: its own model
    auto model = std::make_shared<Line>();
    //@ wrong inner: its own model
    auto model = lockstep::ddp(Line(), session)->module();
    //@ wrong first: left the group
    auto model = std::make_shared<Line>();
    if (session.rank() == 0) model = lockstep::ddp(model, session)->module();
    //@ end
    lockstep::Sgd optimizer(model->parameters(), {.lr = 0.5});
    for (int step = 0; step < 4; ++step) {
      const auto found = model->forward(x.index_select(0, mine));
      const auto error = found - y.index_select(0, mine).to(found.device());
      optimizer.zero_grad();
      error.square().mean().backward();
      optimizer.step();
    }
    lockstep::show("points", static_cast<double>(mine.numel()));
    lockstep::show("slope", model->parameters()[0]);
  });
}
