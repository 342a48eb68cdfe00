#include "lockstep/train/pipeline_model.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/optim/clip.h"
#include "lockstep/parallel/module_tensors.h"
#include "lockstep/parallel/one_f_one_b.h"
#include "lockstep/parallel/stage_line.h"
#include "lockstep/parallel/sync_batch_norm.h"
#include "lockstep/train/bubble.h"
#include "lockstep/train/micro_batches.h"
#include "lockstep/train/pipeline_state.h"
#include "lockstep/train/stage_ddp.h"
#include "lockstep/train/stage_net.h"
#include "lockstep/train/stages.h"

namespace lockstep::train {
namespace {

using parallel::StageLine;

// What a stage keeps of a micro-batch between its forward and its backward.
struct Alive {
  at::Tensor input;  // with its gradient, once backward was there
  at::Tensor root;   // the output, or on the last stage the loss
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

  at::Tensor learn(const at::Tensor& input, const at::Tensor& target, const Lesson& lesson) override;
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
  Alive forward(const MicroBatch& batch, const Lesson& lesson);
  void backward(Alive& alive, const MicroBatch& batch, const Lesson& lesson);
  at::Tensor share_loss(const at::Tensor& mine) const;

  std::unique_ptr<StageLine> line_;
  std::shared_ptr<StageNet> stage_;
  Stages stages_;
  bool is_first_copy_;
  StageDdp ddp_;
  int64_t micro_batches_;
  Bubble bubble_;
};

at::Tensor PipelineModel::learn(const at::Tensor& input, const at::Tensor& target, const Lesson& lesson) {
  const auto batches = cut_batch(input, target, micro_batches_, lesson.weight);
  const auto count = static_cast<int64_t>(batches.size());
  std::vector<Alive> alive(batches.size());
  auto loss = torch::zeros({}, torch::kFloat64);
  bubble_.begin();
  ddp_.begin_batch();
  for (const auto& [is_forward, number] : one_f_one_b(line_->stages(), line_->stage(), count)) {
    auto& own = alive[static_cast<size_t>(number)];
    const auto& batch = batches[static_cast<size_t>(number)];
    if (is_forward) {
      own = forward(batch, lesson);
      if (line_->is_last()) loss += own.root.detach().to(torch::kCPU, torch::kFloat64) / batch.parts;
      continue;
    }
    if (number + 1 == count) ddp_.begin_last_backward(own.root);
    backward(own, batch, lesson);
    own = {};
  }
  lesson.enter(Phase::waiting);
  line_->flush();
  loss = share_loss(loss);
  bubble_.end();
  return loss;
}

Alive PipelineModel::forward(const MicroBatch& batch, const Lesson& lesson) {
  const auto shape = batch.input.sizes().vec();
  Alive alive;
  lesson.enter(Phase::waiting);
  alive.input = line_->is_first() ? batch.input : line_->receive_input(shape);
  lesson.enter(Phase::forward);
  bubble_.busy([&] {
    const auto scope = lesson.autocast();
    alive.root = stage_->own_forward(alive.input);
    if (line_->is_last()) alive.root = lesson.criterion(alive.root, batch.target);
  });
  if (!line_->is_last()) line_->send_output(alive.root, shape);
  return alive;
}

// Where nothing before a place learns, no gradient is sent there.
void PipelineModel::backward(Alive& alive, const MicroBatch& batch, const Lesson& lesson) {
  const auto shape = batch.input.sizes().vec();
  if (line_->is_last()) {
    bubble_.busy([&] { lesson.backward(alive.root / batch.parts); });
  } else if (alive.root.requires_grad()) {
    lesson.enter(Phase::waiting);
    const auto gradient = line_->receive_gradient(shape);
    bubble_.busy([&] { lesson.backward_from(alive.root, gradient); });
  }
  if (line_->is_first() || !alive.input.requires_grad()) return;
  const auto gradient = alive.input.grad();
  line_->send_gradient(gradient.defined() ? gradient : torch::zeros_like(alive.input), shape);
}

at::Tensor PipelineModel::share_loss(const at::Tensor& mine) const {
  std::vector<at::Tensor> tensors{mine};
  c10d::BroadcastOptions options;
  options.rootRank = line_->stages() - 1;
  line_->team().group()->broadcast(tensors, options)->wait();
  return tensors[0];
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
  return std::make_unique<PipelineModel>(std::move(line), std::move(own), std::move(stages), mesh, settings,
                                         tracer);
}

void check_pipeline(const Settings& settings, at::Device device) {
  if (settings.parallel.pipeline <= 1) return;
  constexpr const char* kKey = "parallel.pipeline";
  if (!device.is_cpu()) {
    throw InputError("a pipeline runs on CPUs only so far: its messages were never tried over NCCL", kKey,
                     "set launch.device=cpu, or parallel.pipeline to 1");
  }
  if (settings.ddp.static_graph) {
    throw InputError(
        "ddp.static_graph does not go with parallel.pipeline: several micro-batches are under "
        "way at once",
        "ddp.static_graph", "set it to false");
  }
  if (settings.parallel.micro_batches > settings.data.batch_size) {
    log::warning(
        format("parallel.micro_batches is {}, and a batch has {} samples: as many micro-batches it is",
               settings.parallel.micro_batches, settings.data.batch_size));
  }
}

}  // namespace lockstep::train
