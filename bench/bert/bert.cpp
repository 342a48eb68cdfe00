// The C++ half of bench/bert/run.py: a BERT drawn after a seed, which takes a step for each line it is sent
// and answers with the loss and the step's milliseconds.
#include <ATen/ATen.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>

#include "lockstep/models/model.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep {
namespace {

constexpr int64_t kClasses = 3;

void serve(int64_t batch, int64_t tokens, int64_t layers) {
  torch::manual_seed(1);
  const auto net = make_model({.name = "bert", .options = {{"num_hidden_layers", std::to_string(layers)}}},
                              "", {3, tokens}, kClasses);
  net->train();
  const auto optimizer =
      make_optimizer({.name = "adamw", .lr = 3e-5, .weight_decay = 0.01}, net->parameters());
  torch::manual_seed(2);
  const auto ids = at::randint(30522, {batch, tokens}, at::kLong);
  const auto target = at::randint(kClasses, {batch}, at::kLong);
  const auto input = at::stack({ids, at::zeros_like(ids), at::ones_like(ids)}, 1);
  std::puts("ready");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    const auto begin = std::chrono::steady_clock::now();
    const auto loss = at::cross_entropy_loss(net->forward(input), target);
    optimizer->zero_grad();
    loss.backward();
    optimizer->step();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    std::printf("%.9g %.3f\n", loss.item<double>(), took.count());
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace lockstep

int main(int, char** argv) {
  lockstep::serve(std::stol(argv[1]), std::stol(argv[2]), std::stol(argv[3]));
}
