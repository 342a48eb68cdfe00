// bench_exported FOLDER MODEL STEPS: microseconds of a training step of a model written by hand, of the same
// model exported by Python (run.py), and of its TorchScript, step by step in turn.
//
// Verified: all three begin with the same weights and end with the same bits, TorchScript where nothing is
// drawn.
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/models/bert.h"
#include "lockstep/models/exported.h"
#include "lockstep/models/torchscript.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;

// As models.py has them, with libtorch's modules alone: the models of lockstep's own have quicker nodes.
struct PlainCnn : Net {
  at::Tensor forward(const at::Tensor& input) override {
    auto x = torch::max_pool2d(torch::relu(conv1(input)), 2);
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    return fc2(torch::relu(fc1(x.view({-1, 64 * 7 * 7}))));
  }
  nn::Conv2d conv1{register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 32, 3).padding(1)))};
  nn::Conv2d conv2{register_module("conv2", nn::Conv2d(nn::Conv2dOptions(32, 64, 3).padding(1)))};
  nn::Linear fc1{register_module("fc1", nn::Linear(64 * 7 * 7, 128))};
  nn::Linear fc2{register_module("fc2", nn::Linear(128, 10))};
};

struct PlainMlp : Net {
  at::Tensor forward(const at::Tensor& input) override {
    return head(torch::relu(fc2(torch::relu(fc1(input)))));
  }
  nn::Linear fc1{register_module("fc1", nn::Linear(8, 64))}, fc2{register_module("fc2", nn::Linear(64, 32))};
  nn::Linear head{register_module("head", nn::Linear(32, 2))};
};

struct Work {
  std::shared_ptr<Net> by_hand;
  at::Tensor input;
  int64_t classes;
};

Work work_of(const std::string& model, const std::string& folder) {
  if (model == "cnn") return {std::make_shared<PlainCnn>(), at::randn({32, 1, 28, 28}), 10};
  if (model == "mlp") return {std::make_shared<PlainMlp>(), at::randn({16, 8}), 2};
  if (model != "bert") throw InputError("no model is called " + model, "bench_exported", "cnn, mlp or bert");
  const auto tokens = at::randint(1000, {16, 1, 32}, at::kLong);
  return {std::make_shared<BertForSequenceClassification>(read_bert_config(folder), 2),
          at::cat({tokens, at::zeros_like(tokens), at::ones_like(tokens)}, 1), 2};
}

struct Contestant {
  explicit Contestant(std::shared_ptr<Net> made)
      : net(std::move(made)), sgd(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)) {}

  // Each draws its dropout from the same seed.
  double timed_step(const at::Tensor& input, const at::Tensor& target, uint64_t seed) {
    torch::manual_seed(seed);
    const auto begin = std::chrono::steady_clock::now();
    sgd.zero_grad();
    torch::nn::functional::cross_entropy(net->forward(input), target).backward();
    sgd.step();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }

  std::shared_ptr<Net> net;
  torch::optim::SGD sgd;
  std::vector<double> times;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void check_equal(const char* which, const Net& one, const Net& other) {
  const auto given = module_state_dict(other);
  for (const auto& [name, tensor] : items(module_state_dict(one))) {
    if (!at::equal(tensor.toTensor(), get(given, name.toStringRef()).toTensor()))
      throw Error(std::string("these end with other weights: ") + which, name.toStringRef());
  }
}

void measure(const std::string& folder, const std::string& model, int64_t steps) {
  at::set_num_threads(1);
  log::set_level(log::Level::error);
  torch::manual_seed(0);
  const auto work = work_of(model, folder);
  const auto exported = load_exported(folder + "/" + model + ".pt2");
  load_module_state_dict(*work.by_hand, module_state_dict(*exported), model);
  std::vector<Contestant> all;
  all.emplace_back(work.by_hand);
  all.emplace_back(exported);
  all.emplace_back(std::make_shared<TorchScriptNet>(folder + "/" + model + ".pt"));
  const auto target = at::randint(work.classes, {work.input.size(0)}, at::kLong);
  constexpr int64_t kWarmUp = 10;  // TorchScript profiles, then optimises
  for (int64_t step = 0; step < kWarmUp + steps; ++step) {
    for (size_t i = 0; i < all.size(); ++i) {
      auto& one = all[(i + static_cast<size_t>(step)) % all.size()];  // nobody is always first
      const auto time = one.timed_step(work.input, target, static_cast<uint64_t>(step));
      if (step >= kWarmUp) one.times.push_back(time);
    }
  }
  check_equal("by hand, exported", *all[0].net, *all[1].net);
  // TorchScript draws a dropout's mask in a way of its own
  if (model != "bert") check_equal("exported, TorchScript", *all[1].net, *all[2].net);
  std::printf("{\"by_hand\": %.2f, \"exported\": %.2f, \"torchscript\": %.2f}\n", median(all[0].times),
              median(all[1].times), median(all[2].times));
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  try {
    if (argc != 4) throw lockstep::InputError("FOLDER, MODEL and STEPS are wanted", "bench_exported");
    lockstep::measure(argv[1], argv[2], std::atoll(argv[3]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", lockstep::describe(error).c_str());
    return 1;
  }
}
