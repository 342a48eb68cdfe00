#include "lockstep/models/fused.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include <algorithm>
#include <typeinfo>
#include <utility>

#include "lockstep/kernels/linear_relu.h"
#include "lockstep/kernels/pool_relu.h"

namespace lockstep {
namespace {

using torch::nn::AnyModule;
using torch::nn::AnyValue;

// Exactly that class: one derived from it may have a forward of its own.
template <class Impl>
const Impl* as(const AnyModule& any) {
  const auto& module = *any.ptr();
  return typeid(module) == typeid(Impl) ? static_cast<const Impl*>(&module) : nullptr;
}

bool is_relu(const AnyModule& any) {
  return as<torch::nn::ReLUImpl>(any) != nullptr;
}

// What it returns is no part of what it was given, so that who changes it in place changes nothing else.
bool makes_anew(const AnyModule& any) {
  return as<torch::nn::LinearImpl>(any) || as<torch::nn::Conv2dImpl>(any) ||
         as<torch::nn::BatchNorm2dImpl>(any);
}

bool all_are(const torch::ExpandingArray<2>& numbers, int64_t wanted) {
  return std::all_of(numbers->begin(), numbers->end(), [wanted](auto number) { return number == wanted; });
}

// 2 x 2, side by side, without an edge.
bool is_pool_of_two(const AnyModule& any) {
  const auto* pool = as<torch::nn::MaxPool2dImpl>(any);
  if (!pool) return false;
  const auto& options = pool->options;
  return all_are(options.kernel_size(), 2) && all_are(options.stride(), 2) && all_are(options.padding(), 0) &&
         all_are(options.dilation(), 1) && !options.ceil_mode();
}

using LayerIterator = torch::nn::SequentialImpl::Iterator;

// One that changes its input in place may come late where nobody else has that input.
bool may_come_late(const LayerIterator& relu, const LayerIterator& begin) {
  return !as<torch::nn::ReLUImpl>(*relu)->options.inplace() || (relu != begin && makes_anew(*(relu - 1)));
}

AnyValue forward_of(torch::nn::SequentialImpl& layers, AnyValue value) {
  const auto begin = layers.begin(), end = layers.end();
  for (auto layer = begin; layer != end; ++layer) {
    const auto next = layer + 1;
    const auto* linear = as<torch::nn::LinearImpl>(*layer);
    if (linear && linear->bias.defined()) {
      const bool with_relu = next != end && is_relu(*next);
      const auto& x = value.get<at::Tensor>();
      value = AnyValue(with_relu ? linear_relu(x, linear->weight, linear->bias)
                                 : linear_alone(x, linear->weight, linear->bias));
      if (with_relu) ++layer;
    } else if (is_relu(*layer) && next != end && is_pool_of_two(*next) && may_come_late(layer, begin)) {
      value = AnyValue(pool_relu(value.get<at::Tensor>()));
      ++layer;
    } else {
      value = layer->any_forward(std::move(value));
    }
  }
  return value;
}

}  // namespace

at::Tensor fused_forward(torch::nn::Sequential& layers, const at::Tensor& x) {
  if (layers->is_empty()) return layers->forward(x);  // which says that it cannot
  return forward_of(*layers, AnyValue(x)).get<at::Tensor>();
}

}  // namespace lockstep
