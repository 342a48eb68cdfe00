// A model that the ranks share beside the same model whole: gradients' norm, overflow, and what goes into a
// checkpoint and comes out of it.
#include "trainer/modes/model.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/comm/connect.h"
#include "lockstep/models/bert_layer.h"
#include "lockstep/models/mlp.h"
#include "lockstep/models/simple_cnn.h"
#include "lockstep/optim/grad_scaler.h"
#include "lockstep/optim/optimizer.h"
#include "ranks.h"

namespace lockstep::train {
namespace {

const Mesh& mesh() {
  static const Team all(test::runtime().job(), comm::connect(test::runtime(), {}), at::kCPU);
  static const Mesh shared(all, {.tensor = all.world()}, [](int, const std::string&) -> Team {
    throw Error("no split is needed where one line has all ranks", "", "");
  });
  return shared;
}

Settings settings(bool sequence = false) {
  Settings settings;
  settings.parallel.tensor = mesh().tensor().world();
  settings.parallel.sequence = sequence;
  return settings;
}

std::shared_ptr<Net> bert(const std::shared_ptr<const Layers>& layers) {
  torch::manual_seed(3);
  return std::make_shared<BertLayerNet>(std::vector<int64_t>{1, 4, 5}, 3,
                                        BertShape{.width = 8, .heads = 2, .intermediate = 16, .dropout = 0.2},
                                        layers);
}

// The same net shared by the ranks and whole on each, after a backward of the same batch through each.
struct Pair {
  std::unique_ptr<TrainedModel> shared;
  std::shared_ptr<Net> whole = bert(std::make_shared<Layers>());

  explicit Pair(bool sequence = false) {
    const auto all = settings(sequence);
    shared = make_trained_model(bert(layers_for(mesh(), all.parallel)), mesh(), all);
    for (Net* net : {&shared->net(), whole.get()}) {
      torch::manual_seed(8);  // dropout's
      loss_of(*net).backward();
    }
  }
  static at::Tensor loss_of(Net& net) {
    const auto draw = at::detail::createCPUGenerator(5);
    return net.forward(at::randn({6, 1, 4, 5}, draw)).square().sum();
  }
};

// How many tensors of two trees are not the same, to the bit.
int differences(const Tree& left, const Tree& right) {
  int count = 0;
  for (const auto& [key, value] : items(left)) {
    const auto other = find(right, key);
    if (!other) return -1;
    if (value.isGenericDict()) count += differences(value, *other);
    if (value.isTensor()) count += at::equal(value.toTensor(), other->toTensor()) ? 0 : 1;
  }
  return count;
}

double norm_of(const std::vector<at::Tensor>& parameters) {
  double sum = 0;
  for (const auto& one : parameters) sum += one.grad().square().sum().item<double>();
  return std::sqrt(sum);
}

TEST(TensorModel, LearnsWhatTheWholeModelDoesWithItsDropout) {
  for (const bool sequence : {false, true}) {
    const Pair pair(sequence);
    torch::manual_seed(9);
    const auto shared = Pair::loss_of(pair.shared->net());
    torch::manual_seed(9);
    const auto whole = Pair::loss_of(*pair.whole);
    EXPECT_TRUE(at::allclose(shared, whole, 1e-5, 1e-6)) << shared << whole;
    // a state dict of gradients, by way of one of parameters
    const torch::NoGradGuard no_grad;
    for (const auto& parameter : pair.shared->parameters()) parameter.set_data(parameter.grad());
    const auto gradients = pair.shared->state_dict();
    for (const auto& item : pair.whole->named_parameters()) {
      const auto mine = find(gradients, item.key())->toTensor();
      EXPECT_TRUE(at::allclose(mine, item.value().grad(), 1e-4, 1e-5)) << item.key() << " " << sequence;
    }
  }
}

TEST(TensorModel, WhatIsWholeOnEachRankHasOneGradient) {
  const Pair pair(/*sequence=*/true);
  const auto wholes = pair.whole->named_parameters();
  int whole = 0;
  for (const auto& item : pair.shared->net().named_parameters()) {
    if (item.value().sizes() != wholes[item.key()].sizes()) continue;  // a part
    ++whole;
    for (const auto& one : mesh().tensor().all_gather(item.value().grad()))
      EXPECT_TRUE(at::equal(one, item.value().grad())) << item.key();
  }
  EXPECT_EQ(whole, 2 + 2 + 2 * 2 + 2);  // embed, classifier, two norms, two biases of row layers
}

TEST(TensorModel, ClipsByTheWholeModelsNorm) {
  Pair pair;
  const double whole = norm_of(pair.whole->parameters()), most = whole / 3;
  const auto first = pair.shared->parameters().front().grad().clone();  // embed.weight, whole on each rank
  pair.shared->clip_gradients(most);
  EXPECT_TRUE(at::allclose(pair.shared->parameters().front().grad(), first / 3, 1e-4, 1e-6));
  EXPECT_LT(norm_of(pair.shared->parameters()), most);  // a rank's own parts alone are less than all
  pair.shared->clip_gradients(whole);                   // small enough already
  EXPECT_TRUE(at::allclose(pair.shared->parameters().front().grad(), first / 3, 1e-4, 1e-6));
}

TEST(TensorModel, LeavesAStepOutOnAllRanksWhereOneOverflows) {
  Pair pair;
  auto& team = mesh().tensor();
  auto optimizer = make_optimizer({.name = "sgd"}, pair.shared->parameters());
  GradScaler scaler(at::kCPU, {.init_scale = 1});
  scaler.share_with([&](at::Tensor& found) { pair.shared->share_overflow(found); });
  EXPECT_TRUE(scaler.step(*optimizer));
  scaler.update();
  if (team.rank() == team.world() - 1)
    pair.shared->parameters()[3].mutable_grad().fill_(std::numeric_limits<float>::infinity());
  EXPECT_FALSE(scaler.step(*optimizer)) << "rank " << team.rank();
}

TEST(TensorModel, LeavesAndTakesTheWholeModelsState) {
  Pair pair;
  const auto adam = [](const std::vector<at::Tensor>& parameters) {
    return make_optimizer({.name = "adam", .lr = 0.01}, parameters);
  };
  const auto shared = adam(pair.shared->parameters()), whole = adam(pair.whole->parameters());
  shared->step();
  const auto model = snapshot(pair.shared->state_dict());
  const auto state = snapshot(pair.shared->whole_optimizer(shared->state_dict()));
  load_module_state_dict(*pair.whole, model, "shared.pt");
  whole->load_state_dict(state);  // every name and shape fits
  // and back: a model that went on takes the same numbers again
  const auto before = snapshot(module_state_dict(pair.shared->net()));
  const auto own = snapshot(shared->state_dict());
  shared->step();
  pair.shared->load_state_dict(module_state_dict(*pair.whole), "whole.pt");
  shared->load_state_dict(pair.shared->own_optimizer(whole->state_dict()));
  EXPECT_EQ(differences(before, module_state_dict(pair.shared->net())), 0);
  EXPECT_EQ(differences(get(own, "state"), get(shared->state_dict(), "state")), 0);
}

TEST(TensorModel, RefusesAnotherModelBeforeAnythingIsChanged) {
  Pair pair;
  Mlp other(20, {8}, 3);
  const auto before = snapshot(pair.shared->state_dict());
  EXPECT_THROW(pair.shared->load_state_dict(module_state_dict(other), "other.pt"), InputError);
  const auto own_parts = module_state_dict(pair.shared->net());  // as if they were the whole
  EXPECT_THROW(pair.shared->load_state_dict(own_parts, "parts.pt"), InputError);
  for (const auto& [name, tensor] : items(pair.shared->state_dict()))
    EXPECT_TRUE(at::equal(tensor.toTensor(), find(before, name)->toTensor()));
}

TEST(TensorModel, RefusesAModelWithoutSplitLayers) {
  EXPECT_THROW(make_trained_model(std::make_shared<SimpleCNN>(), mesh(), settings()), InputError);
}

}  // namespace
}  // namespace lockstep::train
