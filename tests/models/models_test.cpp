#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <memory>

#include "live_bytes.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/models/bert_layer.h"
#include "lockstep/models/chain.h"
#include "lockstep/models/dense.h"
#include "lockstep/models/mlp.h"
#include "lockstep/models/pima_net.h"
#include "lockstep/models/resnet.h"
#include "lockstep/models/simple_cnn.h"
#include "peer.h"

namespace lockstep {
namespace {

std::string bits(const torch::Tensor& tensor) {
  const auto flat = tensor.detach().contiguous();
  return {static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()};
}

template <class M, class... Args>
std::string seeded(at::IntArrayRef shape, Args... args) {
  torch::manual_seed(7);
  M model(args...);
  std::string text;
  for (const auto& parameter : model.parameters()) text += bits(parameter);
  return text + bits(model.forward(torch::randn(shape)));
}

TEST(Models, HavePythonsParametersAndOutputsBitForBit) {
  LOCKSTEP_PYTHON_OR_SKIP(python, "torch");
  torch::set_num_threads(1);
  const auto peer = test::output_of(python + " tests/models/models_peer.py bits 2>/dev/null");
  const auto ours = seeded<SimpleCNN>({5, 1, 28, 28}) + seeded<PimaNet>({5, 8}) +
                    seeded<Mlp>({5, 2, 3}, 6, std::vector<int64_t>{5, 4}, 3) +
                    seeded<BertLayerNet>({5, 1, 6, 5}, std::vector<int64_t>{1, 6, 5}, 3,
                                         BertShape{.width = 8, .heads = 2, .intermediate = 16});
  ASSERT_EQ(peer.size(), ours.size());
  EXPECT_TRUE(peer == ours);
}

TEST(BertLayerNet, IsNamedLikeHuggingFacesBert) {
  BertLayerNet net({1, 6, 5}, 3, {.width = 8, .heads = 2, .intermediate = 16});
  std::string text;
  for (const auto& item : net.named_parameters())
    if (item.key().ends_with("weight")) text += item.key() + " ";
  EXPECT_EQ(text,
            "embed.weight position.weight layer.attention.self.query.weight layer.attention.self.key.weight "
            "layer.attention.self.value.weight layer.attention.output.dense.weight "
            "layer.attention.output.LayerNorm.weight layer.intermediate.dense.weight "
            "layer.output.dense.weight layer.output.LayerNorm.weight classifier.weight ");
}

// torchvision's resnet18 to the bit.

std::string bits(const torch::nn::Module& model) {
  std::string text;
  for (const auto& [name, tensor] : items(module_state_dict(model))) text += bits(tensor.toTensor());
  return text;
}

TEST(ResNet18, IsTorchvisionsBeforeAndAfterAStepBitForBit) {
  LOCKSTEP_PYTHON_OR_SKIP(python, "torchvision");
  torch::set_num_threads(1);
  const auto peer = test::output_of(python + " tests/models/resnet_peer.py bits 2>/dev/null");
  torch::manual_seed(7);
  ResNet18 model(5);
  auto ours = bits(model);
  ASSERT_TRUE(peer.substr(0, ours.size()) == ours) << "drawn otherwise";
  const auto images = torch::randn({4, 3, 64, 64});
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const auto output = model.forward(images);
  ours += bits(output);
  EXPECT_TRUE(peer.substr(0, ours.size()) == ours) << "other outputs";
  torch::cross_entropy_loss(output, torch::tensor({0, 4, 2, 2})).backward();
  optimizer.step();
  ours += bits(model);
  EXPECT_TRUE(peer.substr(0, ours.size()) == ours) << "another step";
  model.eval();
  ours += bits(model.forward(images));
  ASSERT_EQ(peer.size(), ours.size());
  EXPECT_TRUE(peer == ours) << "evaluated otherwise";
}

TEST(ResNet18, TakesTorchvisionsWeightsButForOtherClasses) {
  LOCKSTEP_PYTHON_OR_SKIP(python, "torchvision");
  const test::TempFolder folder;
  test::output_of(python + " tests/models/resnet_peer.py " + folder.path().string());
  ResNet18 five(5), again(5), three(3);
  EXPECT_TRUE(load_pretrained(five, folder / "weights.pt"));
  EXPECT_TRUE(load_pretrained(again, folder / "old.pt"));
  EXPECT_TRUE(bits(five) == bits(again));
  const auto last = three.named_parameters()["fc.weight"].clone();
  EXPECT_FALSE(load_pretrained(three, folder / "weights.pt"));
  EXPECT_TRUE(torch::equal(three.named_parameters()["fc.weight"], last));
  EXPECT_TRUE(
      torch::equal(three.named_parameters()["conv1.weight"], five.named_parameters()["conv1.weight"]));
  EXPECT_THROW(load_pretrained(three, folder / "missing.pt"), InputError);
}

TEST(ResNet18, TakesSmallImagesAndIsAChain) {
  ResNet18 model(2);
  model.eval();
  EXPECT_EQ(model.forward(torch::zeros({1, 3, 1, 1})).sizes(), (at::IntArrayRef{1, 2}));
  EXPECT_EQ(model.chain().size(), 7);
  EXPECT_EQ(model.chain()[5].name, "layer4");
}

TEST(ResNet18, ComputesItsBlocksAgainToTheSameBitsWithLessMemory) {
  torch::set_num_threads(1);
  const auto train = [](bool checkpointing, int64_t& held) {
    torch::manual_seed(7);
    ResNet18 model(5);
    model.use_checkpointing(checkpointing);
    const auto images = torch::randn({8, 3, 64, 64});
    torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    std::string all;
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      const test::LiveBytes bytes;
      const auto output = model.forward(images);
      held = bytes.now();
      torch::cross_entropy_loss(output, torch::tensor({0, 4, 2, 2, 0, 1, 1, 3})).backward();
      optimizer.step();
      all += bits(output) + bits(model);
    }
    return all;
  };
  int64_t held = 0, held_without = 0;
  EXPECT_TRUE(train(true, held) == train(false, held_without));
  // what stands before the first block is kept as ever
  EXPECT_LT(3 * held, 2 * held_without) << held << " and " << held_without;
}

// A model's parts, one after the other, do what its forward does.

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
