// A model's parts, one after the other, do what its forward does.
#include "lockstep/models/chain.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/models/mlp.h"
#include "lockstep/models/pima_net.h"
#include "lockstep/models/simple_cnn.h"

namespace lockstep {
namespace {

template <class M>
void expect_same(M& model, at::IntArrayRef shape, const std::string& names) {
  const auto input = torch::randn(shape);
  auto x = input;
  std::string found;
  for (const auto& part : model.chain()) {
    x = part.forward(x);
    found += part.name + " ";
    bool holds = false;
    for (const auto& item : model.named_parameters())
      holds = holds || item.key().starts_with(part.name + ".");
    EXPECT_TRUE(holds) << part.name << " holds no parameter of that name";
  }
  EXPECT_EQ(found, names);
  EXPECT_TRUE(torch::equal(x, model.forward(input)));
  x.sum().backward();
  std::vector<at::Tensor> gradients;
  for (auto& parameter : model.parameters()) gradients.push_back(parameter.grad().clone());
  model.zero_grad();
  model.forward(input).sum().backward();
  for (size_t i = 0; i < gradients.size(); ++i)
    EXPECT_TRUE(torch::equal(gradients[i], model.parameters()[i].grad())) << i;
}

TEST(Chain, DoesWhatForwardDoesToTheBit) {
  torch::manual_seed(3);
  SimpleCNN cnn;
  expect_same(cnn, {5, 1, 28, 28}, "conv1 conv2 fc1 fc2 ");
  PimaNet pima;
  expect_same(pima, {5, 8}, "fc1 fc2 head ");
  Mlp mlp(6, {5, 4}, 3);
  expect_same(mlp, {5, 2, 3}, "layers.0 layers.2 layers.4 ");
}

}  // namespace
}  // namespace lockstep
