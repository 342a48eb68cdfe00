#include <lockstep/workshop.h>

// A line is fitted to 12 points, by one process. Let several do it together, so that the line comes out the
// same: each has a share of the points, and what they learn is averaged in every step. The line that says how
// many points a rank has seen stays.

struct Line : torch::nn::Module {
  torch::Tensor slope = register_parameter("slope", torch::zeros(1));
  torch::Tensor forward(const torch::Tensor& x) { return slope * x; }
};

int main() {
  return lockstep::run([] {
    const auto x = torch::arange(12) / 10., y = 3 * x + torch::sin(5 * x);

    // TODO: join the job; take this rank's share of the points, not all of them
    lockstep::DistributedSampler sampler(12, {.rank = 0, .world = 1, .shuffle = false});
    const auto mine = torch::tensor(sampler.indices());

    // TODO: wrap the model
    auto model = std::make_shared<Line>();
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
