#include <lockstep/workshop.h>

// A batch of 3 does not fit into memory, so it comes in small batches of 1. The step shall be the one of the whole
// batch, and the ranks shall exchange their gradients once in it, not three times.

struct Line : torch::nn::Module {
  torch::Tensor slope = register_parameter("slope", torch::ones(1));
  torch::Tensor forward(double x) { return slope * x; }
};
using Model = lockstep::DistributedDataParallel<Line>;

// The loss of one sample; the loss of a batch is the mean of its samples' losses.
torch::Tensor loss_of(Model& model, double x) {
  return (model.forward(x) - 2).square().sum();
}

void one_step(Model& model, lockstep::Sgd& optimizer, const std::vector<double>& batch) {
  optimizer.zero_grad();
  // TODO: the mean of the batch; and only the last backward exchanges
  for (const double x : batch) loss_of(model, x).backward();
  optimizer.step();
}

int main() {
  return lockstep::run([] {
    lockstep::Session session;
    auto model = lockstep::ddp(Line(), session);
    int exchanges = 0;  // the hook is what DDP calls to average a bucket: here it counts, too
    const auto mean = lockstep::hooks::allreduce(session.group());
    model->register_comm_hook([&](lockstep::GradBucket& bucket) { return ++exchanges, mean(bucket); }, "count");

    lockstep::Sgd optimizer(model->parameters(), {.lr = 0.01});
    for (int step = 0; step < 2; ++step) {
      const double first = session.rank() + step;
      one_step(*model, optimizer, {first, first + 1, first + 3});
    }
    lockstep::show("exchanges", exchanges);
    lockstep::show("slope", model->module()->slope);
  });
}
