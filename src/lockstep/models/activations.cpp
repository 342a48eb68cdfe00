// The formulas are transformers' (activations.py), in their order of operations: gradients are summed in the
// reverse of it, and within one expression the compiler chooses the order.
#include "lockstep/models/activations.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numbers>
#include <utility>

namespace lockstep::models {
namespace {

at::Tensor gelu(const at::Tensor& x) {
  return at::gelu(x);
}

at::Tensor gelu_new(const at::Tensor& x) {
  const auto half = 0.5 * x;
  const auto cubic = 0.044715 * at::pow(x, 3.0);
  const auto bent = at::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + cubic));
  return half * (1.0 + bent);
}

at::Tensor gelu_pytorch_tanh(const at::Tensor& x) {
  return at::gelu(x, "tanh");
}

constexpr std::pair<const char*, Activation> kActivations[] = {
    {"gelu", gelu},     {"gelu_new", gelu_new}, {"gelu_pytorch_tanh", gelu_pytorch_tanh},
    {"relu", at::relu}, {"silu", at::silu},     {"swish", at::silu},
    {"tanh", at::tanh},
};

}  // namespace

Activation find_activation(const std::string& name) {
  for (const auto& [known, activation] : kActivations)
    if (name == known) return activation;
  return nullptr;
}

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (const auto& row : kActivations) names.emplace_back(row.first);
  return names;
}

}  // namespace lockstep::models
