// Acting: the cart-pole is Gymnasium's, a round's samples are what they should be, and each rank's own.
#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <cmath>
#include <cstring>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/tasks/cart_pole.h"
#include "peer.h"

namespace lockstep::tasks {
namespace {

TEST(CartPole, IsGymnasiumsStateForState) {
  LOCKSTEP_PYTHON_OR_SKIP(python, "gymnasium");
  const auto bytes = test::output_of(python + " tests/tasks/cart_pole_peer.py");
  struct Row {
    double action;
    std::array<double, CartPole::kNumbers> state;
    std::array<double, CartPole::kNumbers> observation;
    double terminated, truncated;
  };
  std::vector<Row> rows(bytes.size() / sizeof(Row));
  std::memcpy(rows.data(), bytes.data(), rows.size() * sizeof(Row));
  int episodes = 0, falls = 0, late = 0;
  CartPole pole;
  for (const auto& row : rows) {
    CartPole::End end;
    if (row.action < 0) {
      ++episodes;
      pole = {row.state, 0};
    } else {
      end = pole.step(row.action == 1);
    }
    ASSERT_EQ(std::memcmp(pole.state.data(), row.state.data(), sizeof row.state), 0)
        << "episode " << episodes;
    for (size_t i = 0; i < pole.state.size(); ++i)
      ASSERT_EQ(static_cast<double>(static_cast<float>(pole.state[i])), row.observation[i]);
    ASSERT_EQ(end.fell, row.terminated == 1);
    ASSERT_EQ(end.time_up, row.truncated == 1);
    falls += end.fell;
    late += end.time_up;
  }
  EXPECT_EQ(episodes, 1000);
  EXPECT_GT(falls, 800);
  EXPECT_GT(late, 50);
}

// By hand: one environment, gamma 0.5, lambda 0.5; a fall after the second step, then one more step.
TEST(Advantages, StopAtAnEpisodesEndAndTakeInWhatFollowsTheRound) {
  const Trajectory trail = {.environments = 1,
                            .rewards = {1, 1, 1},
                            .values = {2, 4, 8},
                            .next_values = {4, 0, 16},
                            .ended = {false, true, false}};
  const auto advantages = advantages_of(trail, 0.5, 0.5);
  EXPECT_EQ(advantages, (std::vector<double>{1 + 2 - 2 + 0.25 * -3, 1 + 0 - 4, 1 + 8 - 8}));
}

PolicyMethod small() {
  PolicyMethod method;
  method.environments = 3;
  method.steps = 40;
  return method;
}

// Pushes right where the pole leans to the right, and says how far it leans.
at::Tensor lean(const at::Tensor& seen) {
  const auto leaning = 3 * seen.select(1, 2) + seen.select(1, 3);
  return at::stack({at::zeros_like(leaning), 50 * leaning, leaning.abs()}, 1);
}

TEST(CartPoleActor, BringsAsManySamplesAsItSaysAndTheLogProbabilitiesOfTheModel) {
  CartPoleActor actor(small(), 7, {});
  const auto acted = actor.act(lean);
  ASSERT_EQ(acted.inputs.sizes(), at::IntArrayRef({120, 4}));
  ASSERT_EQ(acted.targets.sizes(), at::IntArrayRef({120, TargetColumns::columns}));
  const auto odds = at::log_softmax(lean(acted.inputs).narrow(1, 0, 2), 1);
  const auto taken = acted.targets.select(1, TargetColumns::action).to(at::kLong).unsqueeze(1);
  EXPECT_TRUE(at::allclose(odds.gather(1, taken).squeeze(1),
                           acted.targets.select(1, TargetColumns::log_probability), 1e-4, 1e-5));
  const auto advantage = acted.targets.select(1, TargetColumns::advantage).to(at::kDouble);
  EXPECT_NEAR(advantage.mean().item<double>(), 0, 1e-6);
  EXPECT_NEAR(advantage.square().mean().item<double>(), 1, 1e-6);
}

TEST(CartPoleActor, TellsATimeThatIsUpFromAFall) {
  auto method = small();
  method.environments = 1;
  method.steps = CartPole::kMostSteps;
  method.lambda = 0;
  method.gamma = 0.5;
  CartPoleActor actor(method, 0, {});
  const auto steady = [](const at::Tensor& seen) {  // holds the pole, and expects 100 of everything
    return at::stack({at::zeros({seen.size(0)}), 1e4 * (3 * seen.select(1, 2) + seen.select(1, 3)),
                      at::full({seen.size(0)}, 100.0)},
                     1);
  };
  const auto acted = actor.act(steady);
  ASSERT_EQ(acted.episodes.size(), 1);
  ASSERT_EQ(acted.episodes[0].reward, CartPole::kMostSteps);
  EXPECT_EQ(acted.targets[-1][TargetColumns::value].item<float>(), 50.5F);  // as every other step's

  CartPoleActor falls(method, 0, {});
  const auto clumsy = falls.act([](const at::Tensor& seen) {
    return at::stack(
        {at::zeros({seen.size(0)}), at::full({seen.size(0)}, 1e4), at::full({seen.size(0)}, 100.0)}, 1);
  });
  ASSERT_GT(clumsy.episodes.size(), 30);
  for (const auto& one : clumsy.episodes)
    EXPECT_EQ(clumsy.targets[one.step][TargetColumns::value].item<float>(), 0.5F);
}

TEST(CartPoleActor, RefusesAStateOfOtherEnvironments) {
  CartPoleActor actor(small(), 7, {});
  auto more = small();
  more.environments = 4;
  EXPECT_THROW(actor.restore(CartPoleActor(more, 7, {}).state()), InputError);
  EXPECT_THROW(actor.restore({at::zeros({3, 4})}), InputError);
}

TEST(CartPoleActor, HasEnvironmentsOfItsOwnOnEachRank) {
  std::set<int64_t> streams;
  for (int rank = 0; rank < 50; ++rank) {
    const auto counts = CartPoleActor(small(), 7, {.rank = rank, .world = 50}).state()[1];
    for (int64_t e = 0; e < small().environments; ++e) streams.insert(counts[e][1].item<int64_t>());
  }
  EXPECT_EQ(streams.size(), 150);
}

at::Tensor target_of(double action, double advantage, double value, double log_probability) {
  return at::tensor({action, advantage, value, log_probability}).to(at::kFloat).unsqueeze(0);
}

// Even odds: a log-probability of -ln 2 and an entropy of ln 2.
TEST(PolicyLoss, IsThePlainGradientsWithABaseline) {
  auto method = policy_method({{"method", "policy_gradient"}});
  const auto output = at::tensor({0.0F, 0.0F, 3.0F}).unsqueeze(0);
  const double expected = 0.5 * 4 + std::log(2) * 2 - 0.01 * std::log(2);
  EXPECT_NEAR(policy_loss(method, output, target_of(1, 2, 5, 0), at::Reduction::Mean).item<double>(),
              expected, 1e-5);
}

TEST(PolicyLoss, OfPpoIsClippedWhereThatIsLess) {
  const PolicyMethod method = {.entropy = 0, .value = 0};
  const auto output = at::tensor({0.0F, 0.0F, 0.0F}).unsqueeze(0);
  const auto loss = [&](double advantage, double before) {
    return policy_loss(method, output, target_of(0, advantage, 0, before), at::Reduction::Sum).item<double>();
  };
  EXPECT_NEAR(loss(1, std::log(0.25)), -1.2, 1e-5);  // twice as likely as it was
  EXPECT_NEAR(loss(-1, std::log(0.25)), 2, 1e-5);
  EXPECT_NEAR(loss(1, std::log(0.5)), -1, 1e-5);
}

}  // namespace
}  // namespace lockstep::tasks
