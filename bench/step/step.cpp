// bench_step MODEL STEPS: milliseconds per step of DDP against the plain module, step by step in turn.
//
// Alone (world 1) it shows what DDP itself costs; under mpirun -n 2 run.py compares it with Python's.
// Verified: at world 1 both end with the same bits, and at any world all ranks do.
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/launch/process/runtime.h"
#include "lockstep/models/pima_net.h"
#include "lockstep/models/simple_cnn.h"
#include "lockstep/parallel/ddp.h"

namespace lockstep {
namespace {

struct Work {
  std::shared_ptr<Net> (*make)();
  std::vector<int64_t> shape;
  int64_t classes;
};

Work work_of(const std::string& model) {
  if (model == "cnn")
    return {[]() -> std::shared_ptr<Net> { return std::make_shared<SimpleCNN>(); }, {128, 1, 28, 28}, 10};
  if (model == "mlp")
    return {[]() -> std::shared_ptr<Net> { return std::make_shared<PimaNet>(); }, {16, 8}, 2};
  throw InputError("no model is called " + model, "bench_step", "cnn or mlp");
}

std::shared_ptr<Net> seeded(const Work& work) {
  torch::manual_seed(0);
  return work.make();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// One step of training, and its time in milliseconds.
template <class Model>
double timed_step(Model& model, torch::optim::SGD& sgd, const at::Tensor& input, const at::Tensor& target) {
  const auto begin = std::chrono::steady_clock::now();
  sgd.zero_grad();
  torch::nn::functional::cross_entropy(model.forward(input), target).backward();
  sgd.step();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

void check_equal(const Net& one, const Net& other) {
  const auto a = one.parameters(), b = other.parameters();
  for (size_t i = 0; i < a.size(); ++i)
    if (!at::equal(a[i], b[i])) throw Error("DDP's parameters are not the plain module's", "bench_step");
}

void check_ranks(const launch::Runtime& runtime, const Net& net) {
  double sum = 0;
  for (const auto& parameter : net.parameters()) sum += parameter.to(at::kDouble).abs().sum().item<double>();
  char text[64];
  std::snprintf(text, sizeof text, "%a", sum);
  for (const auto& other : runtime.all_gather(text))
    if (other != text) throw Error("the ranks' parameters differ", "bench_step");
}

void measure(const std::string& model, int64_t steps) {
  at::set_num_threads(1);
  launch::Runtime runtime;
  const auto group = comm::connect(runtime, {.backend = "gloo"});
  const Work work = work_of(model);
  const auto plain = seeded(work);
  const auto wrapped = ddp(seeded(work), group);
  torch::optim::SGD plain_sgd(plain->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  torch::optim::SGD ddp_sgd(wrapped->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  const auto input =
      at::randn(work.shape, at::detail::createCPUGenerator(static_cast<uint64_t>(group->getRank())));
  const auto target = at::randint(0, work.classes, {work.shape[0]}, at::kLong);

  constexpr int64_t kWarmUp = 12;  // the Reducer times its first ten steps and rebuilds in the second
  std::vector<double> plain_ms, ddp_ms;
  for (int64_t step = 0; step < kWarmUp + steps; ++step) {
    const double one = timed_step(*plain, plain_sgd, input, target);
    const double other = timed_step(*wrapped, ddp_sgd, input, target);
    if (step < kWarmUp) continue;
    plain_ms.push_back(one);
    ddp_ms.push_back(other);
  }
  if (group->getSize() == 1) check_equal(*plain, *wrapped->module());
  if (group->getSize() > 1) check_ranks(runtime, *wrapped->module());
  if (group->getRank() == 0)
    std::printf("{\"plain_ms\": %.4f, \"ddp_ms\": %.4f}\n", median(plain_ms), median(ddp_ms));
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  try {
    lockstep::measure(argc > 1 ? argv[1] : "mlp", argc > 2 ? std::atoll(argv[2]) : 200);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", lockstep::describe(error).c_str());
    return 1;
  }
}
