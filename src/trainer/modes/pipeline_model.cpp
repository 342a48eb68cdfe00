#include "trainer/modes/pipeline_model.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/optim/clip.h"
#include "lockstep/parallel/module_tensors.h"
#include "lockstep/parallel/one_f_one_b.h"
#include "lockstep/parallel/stages/stage_line.h"
#include "lockstep/parallel/stages/stage_steps.h"
#include "lockstep/parallel/sync_batch_norm.h"
#include "trainer/modes/bubble.h"
#include "trainer/modes/micro_batches.h"
#include "trainer/modes/pipeline_state.h"
#include "trainer/modes/stage_ddp.h"
#include "trainer/modes/stage_net.h"
#include "trainer/modes/stages.h"

namespace lockstep::train {
namespace {

using parallel::StageLine;

// What a stage keeps of a micro-batch between its forward and its backward.
struct Alive {
  at::Tensor input;     // with its gradient, once backward was there
  at::Tensor root;      // the output, or on the last stage the loss
  at::Tensor gradient;  // of the output, from the next stage
};

class PipelineModel : public TrainedModel {
 public:
  PipelineModel(std::unique_ptr<StageLine> line, std::shared_ptr<StageNet> net, Stages stages,
                const Mesh& mesh, const Settings& settings, const std::shared_ptr<Tracer>& tracer)
      : TrainedModel(net),
        line_(std::move(line)),
        stage_(net),
        stages_(std::move(stages)),
        is_first_copy_(mesh.data().first()),
        ddp_(net, mesh.data(), settings.ddp, tracer),
        micro_batches_(settings.parallel.micro_batches),
        bubble_(mesh, std::min(settings.parallel.micro_batches, settings.data.batch_size)) {}

  at::Tensor learn(const at::Tensor& input, const at::Tensor& target, const StepContext& context) override;
  at::Tensor forward(const at::Tensor& input) override { return net_->forward(input); }
  std::vector<at::Tensor> parameters() const override {
    return parallel::tensors_of(parallel::unique_parameters(*stage_));
  }
  std::shared_ptr<void> no_sync() override { return ddp_.no_sync(); }
  StageDdp::Buckets buckets() override { return ddp_.all_buckets(line_->team()); }
  void restore_buckets(const StageDdp::Buckets& names) override { ddp_.restore_buckets(names); }
  void clip_gradients(double most) const override {
    clip_grad_norm_(parameters(), most,
                    [this](const auto& own) { return gather_norms(line_->team(), stages_, own); });
  }
  void share_overflow(at::Tensor& found) const override;
  DdpCore* ddp_core() override { return ddp_.core(); }
  std::string summary() const override { return bubble_.words(); }
  bool exchanges() const override { return ddp_.exchanges(); }

  Tree state_dict() const override {
    return is_first_copy_ ? gather_state_dict(line_->team(), stages_, module_state_dict(*stage_))
                          : make_dict();
  }
  void load_state_dict(const Tree& whole, const std::string& file) override;
  Tree whole_optimizer(const Tree& own) const override {
    return is_first_copy_ ? gather_optimizer(line_->team(), stages_, own) : make_dict();
  }
  Tree own_optimizer(const Tree& whole) const override {
    return take_optimizer(line_->stage(), stages_, whole);
  }

 private:
  std::optional<StageLine::Parcel> parcel(const parallel::StageMessage& message,
                                          const StageLine::Sizes& batch, Alive& alive);
  void exchange(const std::vector<parallel::StageMessage>& messages, const std::vector<MicroBatch>& batches,
                std::vector<Alive>& alive);
  void forward(Alive& alive, const MicroBatch& batch, const StepContext& context);
  void backward(const Alive& alive, const MicroBatch& batch, const StepContext& context);
  at::Tensor share_loss(const at::Tensor& mine) const;

  std::unique_ptr<StageLine> line_;
  std::shared_ptr<StageNet> stage_;
  Stages stages_;
  bool is_first_copy_;
  StageDdp ddp_;
  int64_t micro_batches_;
  Bubble bubble_;
};

at::Tensor PipelineModel::learn(const at::Tensor& input, const at::Tensor& target,
                                const StepContext& context) {
  const auto batches = cut_batch(input, target, micro_batches_, context.weight);
  const auto count = static_cast<int64_t>(batches.size());
  const int stages = line_->stages(), stage = line_->stage();
  std::vector<Alive> alive(batches.size());
  auto loss = torch::zeros({}, at::dtype(at::kDouble).device(line_->team().device()));
  bubble_.begin();
  ddp_.begin_batch();
  for (const auto& [messages, turn] :
       parallel::stage_steps(one_f_one_b(stages, stage, count), stages, stage)) {
    if (!messages.empty()) context.enter(Phase::waiting);
    exchange(messages, batches, alive);
    if (!turn) break;
    auto& own = alive[static_cast<size_t>(turn->micro_batch)];
    const auto& batch = batches[static_cast<size_t>(turn->micro_batch)];
    if (turn->forward) {
      forward(own, batch, context);
      if (line_->is_last()) loss += own.root.detach().to(at::kDouble) / batch.parts;
    } else {
      if (turn->micro_batch + 1 == count) ddp_.begin_last_backward(own.root);
      backward(own, batch, context);
      own = {.input = line_->is_first() ? at::Tensor() : own.input, .root = {}, .gradient = {}};
    }
  }
  context.enter(Phase::waiting);
  line_->flush();
  loss = share_loss(loss);
  bubble_.end();
  return loss;
}

// Where nothing before a place learns, no gradient goes there.
std::optional<StageLine::Parcel> PipelineModel::parcel(const parallel::StageMessage& message,
                                                       const StageLine::Sizes& batch, Alive& alive) {
  if (message.forward) return message.sends ? line_->output(alive.root, batch) : line_->input(batch);
  const auto& learns = message.sends ? alive.input : alive.root;
  if (!learns.requires_grad()) return {};
  return message.sends ? line_->gradient_of(alive.input) : line_->gradient(batch);
}

void PipelineModel::exchange(const std::vector<parallel::StageMessage>& messages,
                             const std::vector<MicroBatch>& batches, std::vector<Alive>& alive) {
  std::vector<StageLine::Parcel> parcels;
  for (const auto& message : messages) {
    const auto number = static_cast<size_t>(message.micro_batch);
    auto& own = alive[number];
    const auto one = parcel(message, batches[number].input.sizes().vec(), own);
    if (one) parcels.push_back(*one);
    if (one && !message.sends) (message.forward ? own.input : own.gradient) = one->tensor;
    if (!message.forward && message.sends) own = {};
  }
  line_->exchange(parcels);
}

void PipelineModel::forward(Alive& alive, const MicroBatch& batch, const StepContext& context) {
  if (line_->is_first()) alive.input = batch.input;
  context.enter(Phase::forward);
  bubble_.busy([&] {
    const auto scope = context.autocast();
    alive.root = stage_->own_forward(alive.input);
    if (line_->is_last()) alive.root = context.criterion(alive.root, batch.target);
  });
}

void PipelineModel::backward(const Alive& alive, const MicroBatch& batch, const StepContext& context) {
  if (line_->is_last()) {
    bubble_.busy([&] { context.backward(alive.root / batch.parts); });
  } else if (alive.root.requires_grad()) {
    bubble_.busy([&] { context.backward_from(alive.root, alive.gradient); });
  }
}

at::Tensor PipelineModel::share_loss(const at::Tensor& mine) const {
  std::vector<at::Tensor> tensors{mine};
  c10d::BroadcastOptions options;
  options.rootRank = line_->stages() - 1;
  line_->team().group()->broadcast(tensors, options)->wait();
  return tensors[0];
}

// A stage whose gradients are finite steps back with the others, and scales its next ones as they do.
void PipelineModel::share_overflow(at::Tensor& found) const {
  std::vector<double> most{found.item<double>()};
  line_->team().max(most);
  found.fill_(most[0]);
}

void PipelineModel::load_state_dict(const Tree& whole, const std::string& file) {
  check_state_dict(stages_.shapes, whole, file);
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : items(module_state_dict(*stage_)))
    tensor.toTensor().copy_(find(whole, name)->toTensor());
}

}  // namespace

std::unique_ptr<TrainedModel> make_pipeline_model(std::shared_ptr<Net> net, const Mesh& mesh,
                                                  const Settings& settings,
                                                  const std::shared_ptr<Tracer>& tracer) {
  if (settings.ddp.sync_batchnorm && mesh.data().group()) convert_sync_batchnorm(*net, mesh.data().group());
  auto stages = cut_into_stages(*net, mesh.shape().pipeline);
  const auto words = stages.words(*net);
  for (size_t stage = 0; stage < words.size(); ++stage)
    log::info(format("stage {} of {}: {}", stage, words.size(), words[stage]));
  auto line = std::make_unique<StageLine>(mesh.pipeline());
  auto own = std::make_shared<StageNet>(std::move(net), stages, *line);
  own->to(mesh.all().device());
  return std::make_unique<PipelineModel>(std::move(line), std::move(own), std::move(stages), mesh, settings,
                                         tracer);
}

void warn_of_few_samples(const Settings& settings) {
  if (settings.parallel.pipeline <= 1) return;
  if (settings.parallel.micro_batches > settings.data.batch_size) {
    log::warning(
        format("parallel.micro_batches is {}, and a batch has {} samples: as many micro-batches it is",
               settings.parallel.micro_batches, settings.data.batch_size));
  }
}

}  // namespace lockstep::train
