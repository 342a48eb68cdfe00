#include "lockstep/models/resnet.h"

#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/paths.h"
#include "lockstep/checkpoint/pt.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/models/model.h"
#include "lockstep/recompute/checkpoint_activations.h"

namespace lockstep {
namespace {

constexpr int64_t kWidths[] = {64, 128, 256, 512};

torch::nn::Conv2d conv(int64_t in, int64_t out, int64_t size, int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

torch::nn::Sequential shortcut(int64_t in, int64_t out, int64_t stride) {
  if (in == out && stride == 1) return nullptr;
  return torch::nn::Sequential(conv(in, out, 1, stride), torch::nn::BatchNorm2d(out));
}

/// Two convolutions of 3 x 3 with a shortcut around them, a convolution where the size changes.
class ResidualBlock : public torch::nn::Module {
 public:
  ResidualBlock(int64_t in, int64_t out, int64_t stride)
      : downsample_(shortcut(in, out, stride)),
        conv1_(conv(in, out, 3, stride)),
        conv2_(conv(out, out, 3, 1)),
        bn1_(out),
        bn2_(out) {
    register_module("conv1", conv1_);
    register_module("bn1", bn1_);
    register_module("conv2", conv2_);
    register_module("bn2", bn2_);
    if (downsample_) register_module("downsample", downsample_);
  }

  /// [n, in, h, w] to [n, out, h / stride, w / stride].
  torch::Tensor forward(const torch::Tensor& input) {
    auto x = bn1_->forward(conv1_->forward(input));
    x = bn2_->forward(conv2_->forward(x.relu_()));
    x += downsample_ ? downsample_->forward(input) : input;
    return x.relu_();
  }

 private:
  torch::nn::Sequential downsample_ = nullptr;  // drawn first, registered last: as torchvision has it
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::BatchNorm2d bn1_, bn2_;
};

torch::nn::Sequential two_blocks(int64_t in, int64_t out, int64_t stride) {
  torch::nn::Sequential layer;
  layer->push_back(ResidualBlock(in, out, stride));
  layer->push_back(ResidualBlock(out, out, 1));
  return layer;
}

// Over what the layers drew for themselves, in the order of Python's modules().
void draw(torch::nn::Module& model) {
  for (const auto& module : model.modules(/*include_self=*/false)) {
    if (const auto* layer = module->as<torch::nn::Conv2d>())
      torch::nn::init::kaiming_normal_(layer->weight, 0, torch::kFanOut, torch::kReLU);
  }
}

}  // namespace

ResNet18::ResNet18(int64_t classes) : conv1_(conv(3, kWidths[0], 7, 2)), bn1_(kWidths[0]) {
  register_module("conv1", conv1_);
  register_module("bn1", bn1_);
  int64_t in = kWidths[0];
  for (const int64_t out : kWidths) {
    layers_.push_back(two_blocks(in, out, in == out ? 1 : 2));
    register_module(format("layer{}", layers_.size()), layers_.back());
    in = out;
  }
  fc_ = register_module("fc", torch::nn::Linear(in, classes));
  draw(*this);
}

torch::Tensor ResNet18::start(const torch::Tensor& x) {
  return torch::max_pool2d(bn1_->forward(x).relu_(), 3, 2, 1);
}

torch::Tensor ResNet18::through(const torch::nn::Sequential& layer, torch::Tensor x) const {
  for (size_t i = 0; i < layer->size(); ++i) {
    const auto block = layer->ptr<ResidualBlock>(i);
    x = checkpointing_ ? checkpoint_activations(block, x) : block->forward(x);
  }
  return x;
}

torch::Tensor ResNet18::forward(const torch::Tensor& input) {
  auto x = input;
  for (const auto& part : chain()) x = part.forward(x);
  return x;
}

std::vector<Part> ResNet18::chain() {
  std::vector<Part> parts{
      {"conv1", [this](const torch::Tensor& x) { return conv1_->forward(x); }},
      {"bn1", [this](const torch::Tensor& x) { return start(x); }},
  };
  for (size_t i = 0; i < layers_.size(); ++i) {
    parts.push_back(
        {format("layer{}", i + 1), [this, i](const torch::Tensor& x) { return through(layers_[i], x); }});
  }
  parts.push_back({"fc", [this](const torch::Tensor& x) {
                     return fc_->forward(torch::flatten(torch::adaptive_avg_pool2d(x, {1, 1}), 1));
                   }});
  return parts;
}

bool load_pretrained(ResNet18& model, const std::string& path) {
  const auto given = find_state_dict(read_checkpoint_file(path), path);
  const auto own = module_state_dict(model);
  const auto last = find(given, "fc.bias"), wanted = find(own, "fc.bias");
  const bool same_classes = !last || last->toTensor().sizes() == wanted->toTensor().sizes();
  auto taken = make_dict();
  for (const auto& [name, value] : items(given)) put(taken, name, value);
  for (const auto& [key, value] : items(own)) {
    const auto& name = key.toStringRef();
    // old files have no counters, and torch.load_state_dict does without them as well
    const bool counter = name.ends_with("num_batches_tracked") && !find(given, name);
    if (counter || (!same_classes && name.starts_with("fc."))) put(taken, key, value);
  }
  load_module_state_dict(model, taken, path);
  return same_classes;
}

namespace {

void check_image_input(const std::vector<int64_t>& shape) {
  if (shape.size() == 3 && shape[0] == 3) return;
  throw InputError("the model resnet18 takes images with three colors", "model.name",
                   "use another model, or the task folder");
}

std::shared_ptr<Net> make_resnet18(const ModelRequest& wanted) {
  check_image_input(wanted.input_shape);
  auto model = std::make_shared<ResNet18>(wanted.classes);
  model->use_checkpointing(wanted.settings.checkpointing);
  if (wanted.settings.path.empty()) return model;
  const auto path = base::find_path(wanted.settings.path);
  if (!load_pretrained(*model, path)) {
    static std::once_flag said;  // the model is made twice
    std::call_once(said, [&] {
      log::info(
          format("{}: its last layer is for other classes; a new one for {} classes is randomly initialized",
                 path, wanted.classes));
    });
  }
  return model;
}

}  // namespace

LOCKSTEP_MODEL(
    resnet18,
    .help = "torchvision's, for color images of any size; `path` is a file of its weights, random if empty",
    .reads = {"path", "checkpointing"}, .make = make_resnet18)

}  // namespace lockstep
