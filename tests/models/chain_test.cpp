// A model's parts, one after the other, do what its forward does.
#include "lockstep/models/chain.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <memory>

#include "lockstep/models/dense.h"
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

// What a model says of its dense layers is all that its forward does.

template <class M>
void expect_all(M& model, at::IntArrayRef shape) {
  const auto input = torch::randn(shape);
  auto x = input.flatten(1);
  const auto layers = model.dense_layers();
  for (size_t i = 0; i < layers.size(); ++i) x = layers[i]->forward(i == 0 ? x : torch::relu(x));
  EXPECT_TRUE(torch::equal(x, model.forward(input)));
}

TEST(Dense, LayersAreWhatForwardDoes) {
  torch::manual_seed(4);
  PimaNet pima;
  expect_all(pima, {5, 8});
  Mlp deep(12, {7, 33, 1}, 3), flat(4, {}, 2);
  expect_all(deep, {6, 3, 2, 2});
  expect_all(flat, {1, 4});
}

struct Doubling : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return 2 * x; }
};

// Layers that are no plain Linear, as those that ranks share.
struct Others : Layers {
  Layer linear(int64_t, int64_t, LinearPlace) const override { return Layer(std::make_shared<Doubling>()); }
};

TEST(Dense, AllOfItsParametersAreItsLayersOrItSaysNo) {
  PimaNet pima;
  PimaNetBranch with_branch;
  SimpleCNN images;
  Mlp deep(12, {7, 33}, 3), shared(4, {3}, 2, Others());
  EXPECT_TRUE(is_all_dense(pima));
  EXPECT_TRUE(is_all_dense(deep));
  EXPECT_FALSE(is_all_dense(with_branch));
  EXPECT_FALSE(is_all_dense(images));
  EXPECT_FALSE(is_all_dense(shared));
}

}  // namespace
}  // namespace lockstep
