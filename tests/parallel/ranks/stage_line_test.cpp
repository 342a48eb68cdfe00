// A line of stages that exchange tensors by stage_steps(), over gloo and over a backend with NCCL's rules:
// what comes, in which form, and that all end.
#include "lockstep/parallel/stages/stage_line.h"

#include <gmock/gmock.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "in_order.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/comm/cuda_load.h"
#include "ranks.h"

namespace lockstep::parallel {
namespace {

ProcessGroup gloo() {
  static const auto shared =
      comm::connect(test::runtime(), {.backend = "gloo", .timeout = std::chrono::seconds(30)});
  return shared;
}

Team line_team(bool grouped) {
  return {test::runtime().job(), grouped ? test::in_order(gloo()) : gloo(), at::kCPU};
}

class StageLines : public ::testing::TestWithParam<bool> {
 protected:
  StageLine line_{line_team(GetParam())};
  const int stages_ = line_.stages(), stage_ = line_.stage();
};

// Each stage adds its number plus one to what comes; backward takes ten times what comes back.
void play(StageLine& line, int64_t micro_batches) {
  const StageLine::Sizes batch{2, 3};
  const auto here = at::TensorOptions().device(line.team().device());
  std::vector<at::Tensor> inputs(static_cast<size_t>(micro_batches)), outputs = inputs, gradients = inputs;
  const auto parcel = [&](const StageMessage& message) {
    const auto number = static_cast<size_t>(message.micro_batch);
    if (message.sends)
      return message.forward ? line.output(outputs[number], batch) : line.gradient_of(inputs[number]);
    const auto comes = message.forward ? line.input(batch) : line.gradient(batch);
    (message.forward ? inputs : gradients)[number] = comes.tensor;
    return comes;
  };
  for (const auto& [messages, turn] : stage_steps(line.stages(), line.stage(), micro_batches)) {
    std::vector<StageLine::Parcel> parcels;
    for (const auto& message : messages) parcels.push_back(parcel(message));
    line.exchange(parcels);
    if (!turn) break;
    const auto number = static_cast<size_t>(turn->micro_batch);
    const auto begin = static_cast<double>(turn->micro_batch);
    if (turn->forward) {
      if (line.is_first()) inputs[number] = torch::full({2, 3}, begin, here).requires_grad_();
      EXPECT_EQ(inputs[number].sum().item<double>(), 6 * (begin + line.stage() * (line.stage() + 1) / 2.0));
      outputs[number] = inputs[number] + line.stage() + 1;
    } else {
      const auto after = line.is_last() ? torch::full({2, 3}, begin, here) : gradients[number];
      EXPECT_EQ(after.sum().item<double>(), 6 * begin * std::pow(10, line.stages() - line.stage() - 1));
      inputs[number].mutable_grad() = 10 * after;
    }
  }
  line.flush();
}

TEST_P(StageLines, ExchangeEveryMicroBatchInBothDirections) {
  for (const int64_t micro_batches : {1, 2, 3, 5, 12}) play(line_, micro_batches);
}

TEST_P(StageLines, GroupWhatIsBetweenTwoTurns) {
  if (!GetParam() || stages_ == 1) return;
  const auto* backend = dynamic_cast<const test::InOrder*>(line_.team().group()->getBackend(c10::kCPU).get());
  ASSERT_NE(backend, nullptr);
  play(line_, 5);  // after the group that connects
  const auto steps = stage_steps(stages_, stage_, 5);
  EXPECT_EQ(backend->groups() - 1, std::count_if(steps.begin(), steps.end(),
                                                 [](const auto& step) { return !step.messages.empty(); }));
}

// Forward alone, as an evaluation does: through all stages, and the last one's on every stage.
at::Tensor through(StageLine& line, const at::Tensor& first, const StageLine::Sizes& batch) {
  auto tensor = first;
  if (!line.is_first()) {
    const auto comes = line.input(batch);
    line.exchange({comes});
    tensor = comes.tensor;
  }
  if (!line.is_last()) line.exchange({line.output(tensor, batch)});
  const auto result = line.from_last(tensor, batch);
  line.flush();
  return result;
}

TEST_P(StageLines, KeepTypeStridesAndWhetherAGradientIsWanted) {
  const auto image = torch::arange(24).view({1, 2, 3, 4}).to(at::kBFloat16);
  const auto last = image.contiguous(at::MemoryFormat::ChannelsLast);
  const auto came = through(line_, last, {1});
  EXPECT_TRUE(torch::equal(came, image));
  EXPECT_EQ(came.strides(), last.strides());
  EXPECT_EQ(came.scalar_type(), at::kBFloat16);
  EXPECT_FALSE(came.requires_grad());
  EXPECT_EQ(through(line_, last.transpose(2, 3).narrow(2, 0, 2), {2}).sizes(),
            (std::vector<int64_t>{1, 2, 2, 3}));
}

TEST_P(StageLines, SendZerosBackWhereNothingWasLearntFromAnInput) {
  if (stages_ == 1) return;
  const StageLine::Sizes batch{4};
  const auto learning = torch::ones({4}).requires_grad_();
  if (!line_.is_last()) line_.exchange({line_.output(learning, batch)});
  if (!line_.is_first()) {
    const auto comes = line_.input(batch);
    line_.exchange({comes});
    EXPECT_TRUE(comes.tensor.requires_grad());
    line_.exchange({line_.gradient_of(comes.tensor)});
  }
  if (!line_.is_last()) {
    const auto gradient = line_.gradient(batch);
    line_.exchange({gradient});
    EXPECT_TRUE(torch::equal(gradient.tensor, torch::zeros({4})));
  }
  line_.flush();
}

TEST_P(StageLines, RefuseAnOutputThatChangesItsShape) {
  if (line_.stage() == 1) (void)line_.input({1});  // a first output's form goes ahead of it
  if (!line_.is_first() || stages_ == 1) return;
  (void)line_.output(torch::ones({2, 2}), {1});
  EXPECT_THROW((void)line_.output(torch::ones({2, 3}), {1}), Error);
  line_.flush();
}

struct OneByOne : test::InOrder {
  using InOrder::InOrder;
  bool supportsCoalescing() const override { return false; }
};

TEST(StageLine, RefusesAGpusBackendThatKnowsNoGroups) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(gloo()->getRank(), gloo()->getSize());
  group->setBackend(c10::kCUDA, c10d::ProcessGroup::BackendType::CUSTOM,
                    c10::make_intrusive<OneByOne>(gloo()->getBackend(c10::kCPU)));
  EXPECT_THROW(StageLine(Team{test::runtime().job(), group, c10::Device(c10::kCUDA, 0)}), InputError);
}

// tests/e2e/test_comm.py runs it in its own process, because the CUDA plug-in must be loaded first.
TEST(StageLineOnGpus, ExchangesEveryMicroBatchInBothDirections) {
  if (!std::getenv("LOCKSTEP_TEST_GPU")) GTEST_SKIP() << "needs a GPU a rank, and a process of its own";
  const auto& job = test::runtime().job();
  const int own =
      job.local_rank % comm::cuda_device_count();  // two ranks may share one, where NCCL lets them
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(own));
  StageLine line{Team{job, comm::connect(test::runtime(), {.backend = "nccl"}, device), device}};
  for (const int64_t micro_batches : {1, 2, 3, 5, 12}) play(line, micro_batches);
  const auto image = torch::arange(24, device).view({1, 2, 3, 4}).to(at::kHalf);
  const auto came = through(line, image.contiguous(at::MemoryFormat::ChannelsLast), {1});
  EXPECT_TRUE(torch::equal(came, image));
  EXPECT_TRUE(came.is_contiguous(at::MemoryFormat::ChannelsLast));
}

INSTANTIATE_TEST_SUITE_P(Over, StageLines, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "NcclsRules" : "Gloo"; });

}  // namespace
}  // namespace lockstep::parallel
