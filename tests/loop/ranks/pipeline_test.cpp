// A model in two stages beside the whole one: gradients, clipping, buffers, frozen parts, what cannot be cut.
#include "trainer/modes/model.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "in_order.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/comm/connect.h"
#include "lockstep/models/chain.h"
#include "lockstep/optim/clip.h"
#include "lockstep/optim/grad_scaler.h"
#include "lockstep/optim/sgd.h"
#include "ranks.h"
#include "refusal.h"

namespace lockstep::train {
namespace {

// With a part that has no parameters, one with buffers, and one that may share another's weight.
struct Toy : Net, Chain {
  explicit Toy(bool tied = false) {
    if (tied) last->register_parameter("twin", first->weight);
  }
  torch::Tensor forward(const torch::Tensor& input) override {
    auto x = input;
    for (const auto& part : chain()) x = part.forward(x);
    return x;
  }
  std::vector<Part> chain() override {
    return {{"shape", [](const at::Tensor& x) { return x.flatten(1); }},
            {"first", [this](const at::Tensor& x) { return first->forward(x); }},
            {"norm", [this](const at::Tensor& x) { return torch::relu(norm->forward(x)); }},
            {"last", [this](const at::Tensor& x) { return last->forward(x); }}};
  }
  torch::nn::Linear first{register_module("first", torch::nn::Linear(6, 6))};
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(6))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(6, 6))};
};

std::shared_ptr<Toy> toy(bool tied = false) {
  torch::manual_seed(5);
  return std::make_shared<Toy>(tied);
}

ProcessGroup group() {
  static const auto shared =
      comm::connect(test::runtime(), {.backend = "gloo", .timeout = std::chrono::seconds(30)});
  return shared;
}

// Both ranks hold a stage each, so nothing is split.
struct TwoStages {
  explicit TwoStages(ProcessGroup ranks = group()) : all(test::runtime().job(), std::move(ranks), at::kCPU) {}
  Team all;
  Mesh mesh{all, {.pipeline = 2}, [&](int, const std::string&) { return all; }};
  Settings settings;

  std::unique_ptr<TrainedModel> model(const std::shared_ptr<Net>& net, int64_t micro_batches = 1) {
    settings.parallel.pipeline = 2;
    settings.parallel.micro_batches = micro_batches;
    return make_pipeline_model(net, mesh, settings);
  }
};

StepContext context() {
  return {.criterion = [](const at::Tensor& output,
                          const at::Tensor& target) { return torch::mse_loss(output, target); },
          .backward = [](const at::Tensor& loss) { loss.backward(); },
          .autocast = [] { return nullptr; },
          .backward_from = [](const at::Tensor& output,
                              const at::Tensor& gradient) { output.backward(gradient); },
          .weight = [](const at::Tensor& target) { return static_cast<double>(target.size(0)); },
          .enter = [](Phase) {}};
}

struct ToyBatch {
  at::Tensor input = torch::randn({8, 2, 3}, at::detail::createCPUGenerator(1));
  at::Tensor target = torch::randn({8, 6}, at::detail::createCPUGenerator(2));
};

double learn_whole(Toy& whole, const ToyBatch& batch) {
  const auto loss = torch::mse_loss(whole.forward(batch.input), batch.target);
  loss.backward();
  return loss.item<double>();
}

// Of the stage's own parameters, by name.
void expect_gradients(const TrainedModel& model, const Toy& whole, double tolerance) {
  const auto all = whole.named_parameters();
  for (const auto& item : model.net().named_parameters()) {
    const auto& wanted = all[item.key()].grad();
    const auto& ours = item.value().grad();
    ASSERT_EQ(ours.defined(), wanted.defined()) << item.key();
    if (!ours.defined()) continue;
    EXPECT_TRUE(tolerance > 0 ? torch::allclose(ours, wanted, tolerance, tolerance)
                              : torch::equal(ours, wanted))
        << item.key();
  }
}

TEST(Pipeline, HasTheWholeModelsGradientsBuffersAndClippingToTheBit) {
  TwoStages stages;
  const ToyBatch batch;
  const auto whole = toy();
  const auto model = stages.model(toy());
  EXPECT_LT(model->parameters().size(), whole->parameters().size());
  EXPECT_EQ(model->learn(batch.input, batch.target, context()).item<double>(), learn_whole(*whole, batch));
  expect_gradients(*model, *whole, 0);

  model->clip_gradients(0.1);
  clip_grad_norm_(whole->parameters(), 0.1);
  expect_gradients(*model, *whole, 0);

  const auto gathered = model->state_dict();
  if (stages.all.first()) {
    const auto wanted = items(module_state_dict(*whole));
    const auto ours = items(gathered);
    ASSERT_EQ(ours.size(), wanted.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_EQ(ours[i].first.toStringRef(), wanted[i].first.toStringRef());
      EXPECT_TRUE(torch::equal(ours[i].second.toTensor(), wanted[i].second.toTensor()))
          << ours[i].first.toStringRef();
    }
  }
  model->net().eval();
  whole->eval();
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::equal(model->net().forward(batch.input), whole->forward(batch.input)));
}

TEST(Pipeline, AStageThatIsFrozenGetsNoGradientAndHoldsNobodyUp) {
  TwoStages stages;
  const ToyBatch batch;
  const auto whole = toy(), cut = toy();
  for (const auto& net : {whole, cut}) {
    for (auto& parameter : net->first->parameters()) parameter.requires_grad_(false);
    for (auto& parameter : net->norm->parameters()) parameter.requires_grad_(false);
  }
  const auto model = stages.model(cut, 4);
  for (int step = 0; step < 2; ++step) model->learn(batch.input, batch.target, context());
  for (int step = 0; step < 2; ++step) {
    for (int part = 0; part < 4; ++part)
      (torch::mse_loss(whole->forward(batch.input.narrow(0, 2 * part, 2)),
                       batch.target.narrow(0, 2 * part, 2)) /
       4)
          .backward();
  }
  expect_gradients(*model, *whole, 0);
}

TEST(Pipeline, TakesAWholeCheckpointApartOrRefusesItBeforeAnythingChanges) {
  TwoStages stages;
  const auto model = stages.model(toy());
  torch::manual_seed(6);
  const Toy other;
  model->load_state_dict(module_state_dict(other), "other.pt");
  const auto all = other.named_parameters();
  for (const auto& item : model->net().named_parameters())
    EXPECT_TRUE(torch::equal(item.value(), all[item.key()])) << item.key();

  auto damaged = make_dict();
  for (const auto& [name, tensor] : items(module_state_dict(*toy())))
    if (name.toStringRef() != "last.bias") put(damaged, name, tensor);
  EXPECT_THROW(model->load_state_dict(damaged, "damaged.pt"), InputError);
  for (const auto& item : model->net().named_parameters())
    EXPECT_TRUE(torch::equal(item.value(), all[item.key()])) << item.key();
}

TEST(Pipeline, AnOptimizersStateIsTheWholeModels) {
  TwoStages stages;
  const ToyBatch batch;
  const auto whole = toy();
  const auto model = stages.model(toy());
  Sgd ours(model->parameters(), {.lr = 0.1, .momentum = 0.9}),
      theirs(whole->parameters(), {.lr = 0.1, .momentum = 0.9});
  model->learn(batch.input, batch.target, context());
  learn_whole(*whole, batch);
  ours.step();
  theirs.step();
  const auto gathered = model->whole_optimizer(ours.state_dict());
  const auto wanted = theirs.state_dict();
  if (stages.all.first()) {
    const auto states = items(get(gathered, "state"));
    ASSERT_EQ(states.size(), items(get(wanted, "state")).size());
    for (const auto& [index, state] : states) {
      const auto other = find(get(wanted, "state"), index);
      ASSERT_TRUE(other.has_value()) << index;
      EXPECT_TRUE(
          torch::equal(get(state, "momentum_buffer").toTensor(), get(*other, "momentum_buffer").toTensor()))
          << index;
    }
    EXPECT_EQ(elements(get(elements(get(gathered, "param_groups"))[0], "params")).size(), 6U);
  }
  ours.load_state_dict(model->own_optimizer(wanted));  // and back
  EXPECT_THROW(model->own_optimizer(ours.state_dict()), InputError);
}

// Scaled losses: a gradient that is not finite is seen where it is, and the step is left out on all stages.
TEST(Pipeline, LeavesAStepOutOnAllStagesWhereOneOverflows) {
  TwoStages stages;
  const auto model = stages.model(toy());
  const ToyBatch batch;
  Sgd optimizer(model->parameters(), {.lr = 0.1});
  GradScaler scaler(at::kCPU, {.init_scale = 4});
  scaler.share_with([&](at::Tensor& found) { model->share_overflow(found); });
  auto scaled = context();
  scaled.backward = [&](const at::Tensor& loss) { scaler.scale(loss).backward(); };
  model->learn(batch.input, batch.target, scaled);
  EXPECT_TRUE(scaler.step(optimizer));
  scaler.update();
  const auto whole = toy();
  learn_whole(*whole, batch);
  expect_gradients(*model, *whole, 1e-5);  // unscaled on the stage that never saw the loss, too

  if (!stages.all.first())
    model->parameters()[0].mutable_grad().fill_(std::numeric_limits<float>::infinity());
  EXPECT_FALSE(scaler.step(optimizer)) << "rank " << stages.all.rank();
  scaler.update();
  EXPECT_EQ(scaler.current_scale(), 2) << "rank " << stages.all.rank();
}

// The groups that a GPU's messages are, with the bits of gloo's.
TEST(Pipeline, HasTheSameBitsByNcclsRules) {
  TwoStages plain, grouped(test::in_order(group()));
  const ToyBatch batch;
  for (const int64_t micro_batches : {1, 2, 3, 4}) {
    const auto one = plain.model(toy(), micro_batches), other = grouped.model(toy(), micro_batches);
    for (int step = 0; step < 2; ++step) {
      const auto loss = one->learn(batch.input, batch.target, context());
      EXPECT_TRUE(torch::equal(other->learn(batch.input, batch.target, context()), loss));
    }
    const auto wanted = one->net().named_parameters();
    for (const auto& item : other->net().named_parameters())
      EXPECT_TRUE(torch::equal(item.value().grad(), wanted[item.key()].grad())) << item.key();
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(torch::equal(other->net().forward(batch.input), one->net().forward(batch.input)));
    EXPECT_EQ(items(other->state_dict()).size(), items(one->state_dict()).size());
  }
}

TEST(Pipeline, AParameterOfTwoStagesIsRefused) {
  TwoStages stages;
  const auto error = test::error_from([&] { stages.model(toy(/*tied=*/true)); });
  EXPECT_TRUE(test::has(error.what(), "are the same parameter, in two stages"));
}

}  // namespace
}  // namespace lockstep::train
