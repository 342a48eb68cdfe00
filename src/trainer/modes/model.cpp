#include "trainer/modes/model.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <functional>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
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
  log::info(format("data_parallel: {} device{} ({}), {}", devices.size(), devices.size() == 1 ? "" : "s",
                   first.is_cpu() ? "logical, a thread each" : "GPUs",
                   settings.loss_in_forward ? "a loss on each" : "outputs gathered on the first"));
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

class DdpModel : public TrainedModel {
 public:
  DdpModel(std::shared_ptr<Net> net, const Team& team, const DdpSettings& settings,
           const std::shared_ptr<Tracer>& tracer, bool ranges)
      : TrainedModel(net),
        ddp_(ddp(std::move(net), team.group(),
                 {.find_unused_parameters = looks_for_unused(*net_, team, settings),
                  .static_graph = settings.static_graph,
                  .gradient_as_bucket_view = settings.gradient_as_bucket_view,
                  .broadcast_buffers = settings.broadcast_buffers,
                  .bucket_cap_mb = settings.bucket_cap_mb})),
        exchanges_(team.world() > 1),
        plain_after_proof_(!exchanges_ && !settings.has_hook()) {
    auto hook = hooks::by_name(settings.comm_hook, team.group(), settings.options);
    if (tracer && exchanges_) hook = traced(std::move(hook), team.group(), tracer);
    if (ranges && exchanges_) hook = ranged(std::move(hook), team.group());
    if (hook) ddp_->register_comm_hook(std::move(hook), settings.comm_hook);
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
  if (train.mode != TrainMode::ddp && world > 1) {
    throw InputError(
        format("train.mode: {} trains in one process, but {} were started", word_of(train.mode), world),
        "train.mode", "use train.mode=ddp, or start one process");
  }
  if (train.precision == Precision::fp16 && device.is_cpu()) {
    throw InputError("train.precision: fp16 needs a GPU", "train.precision", "use bf16 on a CPU");
  }
  if (train.graph && device.is_cpu()) {
    throw InputError("train.graph needs a GPU, and this rank has none", "train.graph",
                     "start on a GPU with launch.device: cuda, or set train.graph to false");
  }
  if (train.nvtx && device.is_cpu()) {
    throw InputError("train.nvtx needs a GPU, and this rank has none", "train.nvtx",
                     "start on a GPU, or set train.nvtx to false; on CPUs, use train.trace");
  }
  if (train.kernels == KernelChoice::fast)
    kernels::fast_kernels();  // an error now where they are not installed
  if (settings.parallel.pipeline > 1 && settings.parallel.micro_batches > settings.data.batch_size)
    log::warning(format("parallel.micro_batches is {}, but a batch has {} samples: using {} micro-batches",
                        settings.parallel.micro_batches, settings.data.batch_size, settings.data.batch_size));
}

void to_channels_last(Net& net) {
  torch::NoGradGuard no_grad;
  for (auto& tensor : net.parameters()) {
    if (tensor.dim() == 4)
      tensor.set_data(tensor.to(tensor.options(), false, false, at::MemoryFormat::ChannelsLast));
  }
}

std::unique_ptr<TrainedModel> make_trained_model(std::shared_ptr<Net> net, const Mesh& mesh,
                                                 const Settings& settings, const ModelSupplies& supplies) {
  if (settings.train.layout == ImageLayout::channels_last) to_channels_last(*net);
  if (settings.train.kernels == KernelChoice::fast) {
    if (auto model = make_dense_model(net, mesh, settings, supplies)) return model;
    if (!net->use_own_kernels() && !dynamic_cast<Dense*>(net.get()))
      log::info("train.kernels: fast: this model has no fast kernels, so libtorch's are used");
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
