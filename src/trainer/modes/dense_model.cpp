// Models of dense layers without a graph: train.kernels: fast.
#include "trainer/modes/model.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/kernels/fast_kernels.h"
#include "lockstep/models/dense.h"
#include "lockstep/parallel/ddp.h"

namespace lockstep::train {
namespace {

// Beyond it a layer's weights leave the second-level cache, and libtorch's blocked matrices are quicker.
constexpr int64_t kMostWeights = int64_t{1} << 16;

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous() &&
         tensor.requires_grad();
}

bool fits(const torch::nn::LinearImpl& layer, int64_t inputs) {
  return is_plain(layer.weight) && (!layer.bias.defined() || is_plain(layer.bias)) &&
         layer.weight.numel() <= kMostWeights && (inputs == 0 || layer.weight.size(1) == inputs);
}

// Why the settings, or the layers, need autograd; empty where they do not.
std::string obstacle(Net& net, const DenseLayers& layers, const Mesh& mesh, const Settings& settings,
                     const ModelSupplies& supplies) {
  const auto& train = settings.train;
  const auto& shape = mesh.shape();
  const std::vector<std::pair<bool, std::string>> obstacles = {
      {shape.tensor > 1 || shape.pipeline > 1, "ranks share the model's layers"},
      {train.mode == TrainMode::data_parallel, "train.mode is data_parallel"},
      {!mesh.all().device().is_cpu(), "the ranks compute on GPUs"},
      {train.precision != Precision::fp32, "train.precision is " + word_of(train.precision)},
      {train.accumulate > 1, "train.accumulate is above 1"},
      {train.provokes(), "a fault is injected"},
      {settings.ddp.has_hook(), "ddp.comm_hook is " + settings.ddp.comm_hook},
      {settings.optim.sharded, "optim.sharded is set"},
      {supplies.tracer != nullptr, "the trace shows buckets"},
      {supplies.known_loss == KnownLoss::none, "the task has its own loss"},
      {!is_all_dense(net) || !net.buffers().empty(), "the model has other layers than dense ones"},
  };
  for (const auto& [is_there, why] : obstacles)
    if (is_there) return why;
  int64_t inputs = 0;
  for (const auto& layer : layers) {
    if (!fits(*layer, inputs))
      return format("a layer has more than {} weights, or is not a plain float layer on the CPU",
                    kMostWeights);
    inputs = layer->weight.size(0);
  }
  return {};
}

DdpOptions ddp_options_of(const DdpSettings& settings) {
  return {.find_unused_parameters = settings.find_unused_parameters,
          .static_graph = settings.static_graph,
          .bucket_cap_mb = settings.bucket_cap_mb};
}

std::vector<kernels::DenseLayer> sizes_of(const DenseLayers& layers) {
  std::vector<kernels::DenseLayer> sizes;
  for (const auto& layer : layers)
    sizes.push_back({.inputs = layer->weight.size(1), .outputs = layer->weight.size(0)});
  return sizes;
}

class DenseModel : public TrainedModel {
 public:
  DenseModel(std::shared_ptr<Net> net, DenseLayers layers, const Team& team, const Settings& settings,
             const ModelSupplies& supplies)
      : TrainedModel(std::move(net)),
        layers_(std::move(layers)),
        chain_(kernels::fast_kernels().make_dense_chain(sizes_of(layers_))),
        parameters_(net_->parameters()),
        known_loss_(supplies.known_loss),
        loss_(at::zeros({})),
        share_(1.0 / team.world()) {
    cross_entropy_.label_smoothing = settings.train.label_smoothing;
    if (supplies.class_weights.defined()) {
      const auto weights = supplies.class_weights.to(at::kFloat).contiguous();
      cross_entropy_.class_weights.assign(weights.const_data_ptr<float>(),
                                          weights.const_data_ptr<float>() + weights.numel());
    }
    if (team.group()) ddp(net_, team.group(), ddp_options_of(settings.ddp));  // all ranks alike, and rank 0's
    if (team.world() > 1) backend_ = team.group()->getBackend(at::kCPU);
    lay_out_gradients();
  }

  at::Tensor learn(const at::Tensor& input, const at::Tensor& target, const StepContext& context) override {
    const auto x = input.dim() == 2 && input.is_contiguous() ? input : input.flatten(1).contiguous();
    refuse_others(x);
    for (size_t i = 0; i < layers_.size(); ++i) {
      auto& layer = chain_->layer(i);
      layer.weight = layers_[i]->weight.const_data_ptr<float>();
      if (layers_[i]->bias.defined()) layer.bias = layers_[i]->bias.const_data_ptr<float>();
    }
    const float* numbers = x.const_data_ptr<float>();
    const float* outputs = chain_->forward(numbers, x.size(0));
    *loss_.mutable_data_ptr<float>() = static_cast<float>(loss_of(outputs, x.size(0), target));
    if (context.enter) context.enter(Phase::backward);
    chain_->backward(numbers);
    for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = gradients_[i];
    if (backend_) {
      if (context.enter) context.enter(Phase::waiting);
      backend_->allreduce(travelling_)->wait();
    }
    return loss_;
  }
  at::Tensor forward(const at::Tensor& input) override { return net_->forward(input); }
  std::vector<at::Tensor> parameters() const override { return parameters_; }
  bool exchanges() const override { return static_cast<bool>(backend_); }

 private:
  // One behind the other: one sum over the ranks for all.
  void lay_out_gradients() {
    int64_t all = 0;
    for (const auto& parameter : parameters_) all += parameter.numel();
    travelling_ = {at::zeros({all})};
    int64_t at = 0;
    for (const auto& parameter : parameters_) {
      gradients_.push_back(travelling_[0].narrow(0, at, parameter.numel()).view(parameter.sizes()));
      at += parameter.numel();
    }
    for (size_t i = 0; i < layers_.size(); ++i) {
      chain_->layer(i).weight_gradient = gradient_of(layers_[i]->weight);
      if (layers_[i]->bias.defined()) chain_->layer(i).bias_gradient = gradient_of(layers_[i]->bias);
    }
  }

  float* gradient_of(const at::Tensor& parameter) const {
    size_t i = 0;
    while (!parameters_[i].is_same(parameter)) ++i;
    return gradients_[i].mutable_data_ptr<float>();
  }

  void refuse_others(const at::Tensor& x) const {
    if (x.scalar_type() == at::kFloat && x.size(1) == layers_.front()->weight.size(1)) return;
    throw InputError(format("samples of {} numbers ({}) do not fit a model of {} (Float)", x.size(1),
                            c10::toString(x.scalar_type()), layers_.front()->weight.size(1)),
                     "train.kernels: fast", "give the model as many inputs as a sample has numbers");
  }

  // The loss's mean; what goes back of it is this rank's share of the mean over the ranks.
  double loss_of(const float* outputs, int64_t rows, const at::Tensor& target) {
    const int64_t wide = layers_.back()->weight.size(0);
    const bool classes = known_loss_ == KnownLoss::cross_entropy;
    if (target.scalar_type() != (classes ? at::kLong : at::kFloat) ||
        target.numel() != rows * (classes ? 1 : wide))
      throw InputError(format("targets of {} numbers ({}) do not fit {} samples with {} outputs",
                              target.numel(), c10::toString(target.scalar_type()), rows, wide),
                       "train.kernels: fast", "give each sample a class, or a number for each output");
    const auto wanted = target.contiguous();
    if (classes)
      return kernels::fast_kernels().cross_entropy(cross_entropy_, outputs, wanted.const_data_ptr<int64_t>(),
                                                   rows, wide, share_, chain_->output_gradient());
    return kernels::fast_kernels().mean_squared_error(outputs, wanted.const_data_ptr<float>(), rows * wide,
                                                      share_, chain_->output_gradient());
  }

  const DenseLayers layers_;
  const std::unique_ptr<kernels::DenseChain> chain_;
  std::vector<at::Tensor> parameters_, gradients_;
  std::vector<at::Tensor> travelling_;  // all gradients, as one tensor
  const KnownLoss known_loss_;
  kernels::CrossEntropy cross_entropy_;
  at::Tensor loss_;
  const double share_;
  c10::intrusive_ptr<c10d::Backend> backend_;
};

}  // namespace

std::unique_ptr<TrainedModel> make_dense_model(const std::shared_ptr<Net>& net, const Mesh& mesh,
                                               const Settings& settings, const ModelSupplies& supplies) {
  auto* dense = dynamic_cast<Dense*>(net.get());
  if (!dense) return nullptr;
  auto layers = dense->dense_layers();
  const auto why = obstacle(*net, layers, mesh, settings, supplies);
  if (why.empty())
    return std::make_unique<DenseModel>(net, std::move(layers), mesh.data(), settings, supplies);
  log::info("train.kernels: fast: libtorch's kernels are used instead: " + why);
  return nullptr;
}

bool computes_without_graph(const TrainedModel& model) {
  return dynamic_cast<const DenseModel*>(&model) != nullptr;
}

}  // namespace lockstep::train
