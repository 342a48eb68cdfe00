#include <lockstep/workshop.h>

// A batch of 3 does not fit into memory, so the loop runs forward and backward for small batches of 1. The step must
// equal a step with the whole batch, and the ranks must exchange gradients once per step, not three times.

struct Line : torch::nn::Module {
  torch::Tensor slope = register_parameter("slope", torch::ones(1));
  int64_t kept = 0, most = 0;  // outputs in memory that wait for backward
  torch::Tensor forward(double x) {
    const auto output = slope * x;
    most = std::max(most, ++kept);
    output.register_hook([this](const torch::Tensor&) { --kept; });
    return output;
  }
};
using Model = lockstep::DistributedDataParallel<Line>;

// The loss of one sample; the loss of a batch is the mean of its samples' losses.
torch::Tensor loss_of(Model& model, double x) {
  return (model.forward(x) - 2).square().sum();
}

void one_step(Model& model, lockstep::Sgd& optimizer, const std::vector<double>& batch) {
  optimizer.zero_grad();
  // TODO: use the mean of the batch, and exchange gradients only in the last backward
  for (const double x : batch) loss_of(model, x).backward();
  optimizer.step();
}

// SMALL_BATCHES
int main(int count, char** words) {
  return lockstep::run([&] {
    constexpr std::array<double, 5> kOffsets = {0, 1, 3, 2, 5};
    const size_t size = count > 1 ? std::stoul(words[1]) : 3;
    lockstep::Session session;
    auto model = lockstep::ddp(Line(), session);
    int exchanges = 0;  // DDP calls the hook to average a bucket; this one also counts
    const auto mean = lockstep::hooks::allreduce(session.group());
    model->register_comm_hook([&](lockstep::GradBucket& bucket) { return ++exchanges, mean(bucket); }, "count");

    lockstep::Sgd optimizer(model->parameters(), {.lr = 0.01});
    for (int step = 0; step < 2; ++step) {
      std::vector<double> batch;
      for (size_t i = 0; i < size; ++i) batch.push_back(session.rank() + step + kOffsets.at(i));
      one_step(*model, optimizer, batch);
    }
    lockstep::show("exchanges", exchanges);
    lockstep::show("kept at once", model->module()->most);
    lockstep::show("slope", model->module()->slope);
  });
}
