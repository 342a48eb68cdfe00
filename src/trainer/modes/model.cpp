#include "trainer/modes/model.h"

#include <ATen/autocast_mode.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/kernels/fast_kernels.h"
#include "lockstep/models/dense.h"
#include "lockstep/optim/clip.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/ddp.h"
#include "lockstep/parallel/module_tensors.h"
#include "lockstep/parallel/sync_batch_norm.h"

namespace lockstep::train {
namespace {

// `train.mode: data_parallel`: one process, whose batch is split among its devices.

using Wrapped = DataParallel<Net>;

class DataParallelModel : public TrainedModel {
 public:
  DataParallelModel(std::shared_ptr<Net> net, std::unique_ptr<Wrapped> wrapped, bool loss_in_forward)
      : TrainedModel(std::move(net)), wrapped_(std::move(wrapped)), loss_in_forward_(loss_in_forward) {}

  at::Tensor learn(const at::Tensor& input, const at::Tensor& target, const StepContext& context) override {
    if (!loss_in_forward_) return TrainedModel::learn(input, target, context);
    const auto loss = [&] {  // each device computes its own, and nothing but these numbers is gathered
      const auto scope = context.autocast();
      return wrapped_->loss(input, target, context.criterion, [&](const at::Tensor& wanted) {
        return torch::full({}, context.weight(wanted), wanted.options().dtype(torch::kDouble));
      });
    }();
    context.backward(loss);
    return loss;
  }
  at::Tensor forward(const at::Tensor& input) override { return wrapped_->forward(input); }
  std::vector<at::Tensor> parameters() const override { return net_->parameters(); }
  std::vector<at::Device> devices() const override { return wrapped_->devices(); }

 private:
  std::unique_ptr<Wrapped> wrapped_;
  const bool loss_in_forward_;
};

std::unique_ptr<TrainedModel> make_data_parallel_model(std::shared_ptr<Net> net, at::Device first,
                                                       const DataParallelSettings& settings,
                                                       const std::function<std::shared_ptr<Net>()>& another) {
  auto devices = devices_like(first, static_cast<int>(settings.devices));
  log::info(
      format("data_parallel: {}{}; {}",
             base::counted(std::ssize(devices), first.is_cpu() ? "logical CPU device" : "GPU"),
             first.is_cpu() ? " (one thread each)" : "",
             settings.loss_in_forward ? "one loss per device" : "outputs gathered on the first device"));
  auto wrapped = std::make_unique<Wrapped>(net, std::move(devices), another);
  return std::make_unique<DataParallelModel>(std::move(net), std::move(wrapped), settings.loss_in_forward);
}

class SingleModel : public TrainedModel {
 public:
  using TrainedModel::TrainedModel;
  at::Tensor forward(const at::Tensor& input) override { return net_->forward(input); }
  std::vector<at::Tensor> parameters() const override { return net_->parameters(); }
};

// Layers in a row all get a gradient in every step: to look for those that do not, a walk through the graph
// and a second sum, would change nothing but the order of parameters in a bucket. That counts in gloo's sums
// of three ranks and more, and in hooks that take a bucket as a whole.
bool looks_for_unused(Net& net, const Team& team, const DdpSettings& settings) {
  if (!settings.find_unused_parameters || !is_all_dense(net) || settings.has_hook())
    return settings.find_unused_parameters;
  if (team.world() <= 2) return false;
  return team.group()->getBackend(team.device().type())->getBackendName() != "mpi";
}

DdpOptions options_for(Net& net, const Team& team, const DdpSettings& settings) {
  auto options = ddp_options(settings);
  options.find_unused_parameters = looks_for_unused(net, team, settings);
  return options;
}

class DdpModel : public TrainedModel {
 public:
  DdpModel(std::shared_ptr<Net> net, const Team& team, const DdpSettings& settings,
           const std::shared_ptr<Tracer>& tracer, bool ranges)
      : TrainedModel(net),
        ddp_(ddp(std::move(net), team.group(), options_for(*net_, team, settings))),
        exchanges_(team.world() > 1),
        plain_after_proof_(!exchanges_ && !settings.has_hook()) {
    add_comm_hook(ddp_->core(), settings, team.group(), exchanges_ ? tracer : nullptr, ranges && exchanges_);
  }
  at::Tensor forward(const at::Tensor& input) override {
    if (proven()) {
      ddp_->core().check_finalized();  // of the second step
      ddp_.reset();
    }
    return ddp_ ? ddp_->forward(input) : net_->forward(input);
  }
  std::vector<at::Tensor> parameters() const override { return net_->parameters(); }
  std::shared_ptr<void> no_sync() override { return ddp_ ? std::make_shared<NoSync>(ddp_->core()) : nullptr; }
  std::vector<std::vector<std::string>> buckets() override {
    return has_buckets() ? ddp_->core().settle_buckets() : std::vector<std::vector<std::string>>{};
  }
  void restore_buckets(const std::vector<std::vector<std::string>>& names) override {
    if (has_buckets()) ddp_->core().restore_buckets(names);
  }
  DdpCore* ddp_core() override { return ddp_ ? &ddp_->core() : nullptr; }
  bool exchanges() const override { return exchanges_; }
  void stop_timing() { ddp_->core().stop_timing(); }

 private:
  // that the sums of several ranks depend on, or what a hook keeps
  bool has_buckets() const { return exchanges_ || (ddp_ && ddp_->core().comm_hook()); }

  // A group of one has nobody to exchange with: two steps through DDP say whether every parameter takes part,
  // as they would with more ranks, and then the plain model gives the same bits for less.
  bool proven() {
    if (!ddp_ || !plain_after_proof_ || !torch::GradMode::is_enabled() || !ddp_->core().syncs()) return false;
    return ++forwards_ > 2;
  }

  std::shared_ptr<DistributedDataParallel<Net>> ddp_;
  const bool exchanges_;
  const bool plain_after_proof_;
  int forwards_ = 0;
};

// `train.kernels: fast` for linear layers with ReLU between them: no graph, no Reducer, one sum of gradients.

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
      {!is_all_dense(net) || !net.buffers().empty(), "the model has layers other than dense ones"},
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
    if (team.group()) ddp(net_, team.group(), ddp_options(settings.ddp));  // all ranks alike, and rank 0's
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
    throw InputError(format("the samples have {} values ({}), but the model takes {} (Float)", x.size(1),
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

// Null if the model or the settings need autograd; the log says why if the layers are dense. Collective.
std::unique_ptr<TrainedModel> make_dense_model(const std::shared_ptr<Net>& net, const Mesh& mesh,
                                               const Settings& settings, const ModelSupplies& supplies) {
  auto* dense = dynamic_cast<Dense*>(net.get());
  if (!dense) return nullptr;
  auto layers = dense->dense_layers();
  const auto why = obstacle(*net, layers, mesh, settings, supplies);
  if (why.empty())
    return std::make_unique<DenseModel>(net, std::move(layers), mesh.data(), settings, supplies);
  log::info(format("train.kernels: fast is not available here ({}); using libtorch's kernels", why));
  return nullptr;
}

// Among the ranks that have the same parameters.
std::unique_ptr<TrainedModel> over_samples(std::shared_ptr<Net> net, const Team& team,
                                           const Settings& settings, const std::shared_ptr<Tracer>& tracer) {
  if (!team.group()) return std::make_unique<SingleModel>(std::move(net));
  if (settings.ddp.sync_batchnorm) convert_sync_batchnorm(*net, team.group());
  auto model = std::make_unique<DdpModel>(std::move(net), team, settings.ddp, tracer, settings.train.nvtx);
  if (settings.train.graph) model->stop_timing();
  return model;
}

}  // namespace

Autocast::Autocast(at::DeviceType device, Precision precision)
    : device_(device), on_(precision != Precision::fp32) {
  if (!on_) return;
  was_on_ = at::autocast::is_autocast_enabled(device_);
  was_type_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, precision == Precision::bf16 ? at::kBFloat16 : at::kHalf);
  at::autocast::increment_nesting();
}

// As torch.autocast.__exit__: the low-precision copies of the weights live as long as the outermost scope.
Autocast::~Autocast() {
  if (!on_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_on_);
  at::autocast::set_autocast_dtype(device_, was_type_);
}

bool computes_without_graph(const TrainedModel& model) {
  return dynamic_cast<const DenseModel*>(&model) != nullptr;
}

DdpOptions ddp_options(const DdpSettings& settings) {
  return {.find_unused_parameters = settings.find_unused_parameters,
          .static_graph = settings.static_graph,
          .gradient_as_bucket_view = settings.gradient_as_bucket_view,
          .broadcast_buffers = settings.broadcast_buffers,
          .bucket_cap_mb = settings.bucket_cap_mb};
}

void add_comm_hook(DdpCore& core, const DdpSettings& settings, const ProcessGroup& group,
                   const std::shared_ptr<Tracer>& tracer, bool ranges) {
  auto hook = hooks::by_name(settings.comm_hook, group, settings.options);
  if (tracer) hook = with_spans(std::move(hook), group, tracer);
  if (ranges) hook = with_ranges(std::move(hook), group);
  if (hook) core.register_comm_hook(std::move(hook), settings.comm_hook);
}

Tree TrainedModel::state_dict() const {
  auto own = module_state_dict(*net_);
  if (!parts_) return own;
  return is_first_copy_ ? parts_->whole_state_dict(own) : make_dict();
}

void TrainedModel::load_state_dict(const Tree& whole, const std::string& file) {
  load_module_state_dict(
      *net_, parts_ ? parts_->own_state_dict(module_state_dict(*net_), whole, file) : whole, file);
}

Tree TrainedModel::whole_optimizer(const Tree& own) const {
  if (!parts_) return own;
  return is_first_copy_ ? parts_->whole_optimizer(own) : make_dict();
}

void TrainedModel::clip_gradients(double most) const {
  if (!parts_) {
    clip_grad_norm_(parameters(), most);
  } else {
    clip_grad_norm_(parameters(), most, [this](const auto& own) { return parts_->whole_norms(own); });
  }
}

void TrainedModel::share_overflow(at::Tensor& found) const {
  if (!parts_) return;
  std::vector<double> most{found.item<double>()};
  parts_->team().max(most);
  found.fill_(most[0]);
}

std::vector<at::Device> TrainedModel::devices() const {
  return parallel::devices_of(*net_);
}

void check_mode(const Settings& settings, int world, at::Device device) {
  const auto& train = settings.train;
  if (train.mode != TrainMode::ddp && world > 1)
    throw InputError(
        format("train.mode: {} needs one process, but the launcher started {}", word_of(train.mode), world),
        "train.mode", "set train.mode to ddp, or start one process");
  if (train.precision == Precision::fp16 && device.is_cpu())
    throw InputError("train.precision: fp16 needs a GPU", "train.precision", "use bf16 on a CPU");
  if (train.graph && device.is_cpu())
    throw InputError("train.graph needs a GPU, and this rank has none", "train.graph",
                     "start on a GPU with launch.device: cuda, or set train.graph to false");
  if (train.nvtx && device.is_cpu())
    throw InputError("train.nvtx needs a GPU, and this rank has none", "train.nvtx",
                     "start on a GPU, or set train.nvtx to false; on CPUs, use train.trace");
  if (train.kernels == KernelChoice::fast)
    kernels::fast_kernels();  // an error now where they are not installed
  if (settings.parallel.pipeline > 1 && settings.parallel.micro_batches > settings.data.batch_size)
    log::warning(format("parallel.micro_batches is {}, which is more than data.batch_size ({}): using {}",
                        settings.parallel.micro_batches, settings.data.batch_size, settings.data.batch_size));
}

void to_channels_last(Net& net) {
  torch::NoGradGuard no_grad;
  for (auto& tensor : net.parameters())
    if (tensor.dim() == 4)
      tensor.set_data(tensor.to(tensor.options(), false, false, at::MemoryFormat::ChannelsLast));
}

std::unique_ptr<TrainedModel> make_trained_model(std::shared_ptr<Net> net, const Mesh& mesh,
                                                 const Settings& settings, const ModelSupplies& supplies) {
  if (settings.train.layout == ImageLayout::channels_last) to_channels_last(*net);
  if (settings.train.kernels == KernelChoice::fast) {
    if (auto model = make_dense_model(net, mesh, settings, supplies)) return model;
    if (!net->use_own_kernels() && !dynamic_cast<Dense*>(net.get()))
      log::info("train.kernels: fast is not available for this model; using libtorch's kernels");
  }
  if (mesh.shape().pipeline > 1) return make_pipeline_model(std::move(net), mesh, settings, supplies.tracer);
  net->to(mesh.all().device());
  if (settings.train.mode == TrainMode::data_parallel)
    return make_data_parallel_model(std::move(net), mesh.all().device(), settings.data_parallel,
                                    supplies.another);
  auto model = over_samples(net, mesh.data(), settings, supplies.tracer);
  if (mesh.tensor().world() > 1)
    model->set_parts(make_tensor_parts(*net, model->parameters(), mesh.tensor()), mesh.data().first());
  return model;
}

}  // namespace lockstep::train
