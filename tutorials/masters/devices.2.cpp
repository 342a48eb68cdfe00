//@ title      The loss on the devices of the outputs
//@ hint       5 samples on 4 devices are parts of 2, 2 and 1. Which share of the batch's mean comes from the last part?
//@ hint       A mean times its number of samples is a sum. How do you get the mean of the whole batch from the sums?
//@ hint       Sum losses[i] * samples[i], and divide by the samples of all parts. Use tensors for all of it.
#include <lockstep/workshop.h>

// Each device has computed the loss of its own part, a mean over its samples. Device 0 gets one number per device:
// losses[i], a 0-d tensor, over samples[i] samples. Compute the mean over the whole batch from them. Use only tensors,
// because backward() needs the graph: losses[i].item() would break it.
at::Tensor whole_loss(const std::vector<at::Tensor>& losses, const std::vector<int64_t>& samples) {
  //@ todo
  // TODO: return the mean over the samples of all devices
  (void)samples;
  return losses.front();
  //@ solution
  auto sum = torch::zeros({}, at::kDouble);
  int64_t all = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    sum = sum + losses[i] * samples[i];
    all += samples[i];
  }
  return sum / all;
  //@ wrong mean
  (void)samples;
  return torch::stack(losses).mean();
  //@ wrong sum
  (void)samples;
  return torch::stack(losses).sum();
  //@ wrong undivided
  auto sum = torch::zeros({}, at::kDouble);
  for (size_t i = 0; i < losses.size(); ++i) sum = sum + losses[i] * samples[i];
  return sum;
  //@ wrong float32
  auto sum = torch::zeros({}, at::kFloat);
  int64_t all = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    sum = sum + losses[i].to(at::kFloat) * samples[i];
    all += samples[i];
  }
  return sum / all;
  //@ wrong item
  double sum = 0;
  int64_t all = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    sum += losses[i].item<double>() * samples[i];
    all += samples[i];
  }
  return torch::tensor(sum / all, at::kDouble);
  //@ end
}

// A model with one number, and a batch of samples x = 1, 2, 3, ... with targets x * x.
void try_batch(int64_t size, int64_t devices) {
  const auto weight = torch::full({}, 1.5, torch::dtype(at::kDouble).requires_grad(true));
  std::vector<at::Tensor> losses;
  std::vector<int64_t> samples;
  for (const auto& x : torch::arange(1, size + 1, at::kDouble).chunk(devices)) {
    losses.push_back((weight * x - x * x).square().mean());  // on its device
    samples.push_back(x.size(0));
  }
  const auto loss = whole_loss(losses, samples);
  lockstep::show("loss", loss.item<double>());
  if (loss.requires_grad()) loss.backward();
  lockstep::show("gradient", weight.grad().defined() ? weight.grad().item<double>() : 0);
}

int main() {
  return lockstep::run([] {
    try_batch(8, 2);
    try_batch(5, 4);
    try_batch(7, 3);
    try_batch(3, 1);
  });
}
