#include "lockstep/kernels/pool_relu.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "lockstep/kernels/pool_relu_loops.h"

namespace lockstep::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// ATen's relu keeps -0 on x86-64, which the loops do too; on aarch64 it makes it 0.
#if defined(__x86_64__)
constexpr bool kAtensBits = true;
#else
constexpr bool kAtensBits = false;
#endif

bool is_known(const at::Tensor& x) {
  const bool in_order = x.is_contiguous() || x.is_contiguous(at::MemoryFormat::ChannelsLast);
  return kAtensBits && x.device().is_cpu() && x.layout() == at::kStrided && x.dim() == 4 && x.numel() > 0 &&
         in_order && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16) && x.size(2) > 1 &&
         x.size(3) > 1 && !x._fw_grad(0).defined();
}

struct PoolRelu : torch::autograd::Function<PoolRelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    const auto images = images_of(x);
    auto pooled = pool_relu_forward(x, images, level());
    context->save_for_backward({pooled.winner});
    context->saved_data["sizes"] = x.sizes();
    context->saved_data["channels_last"] = images.channels_last;
    return pooled.output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto winner = context->get_saved_variables()[0];
    PooledImages images = {{}, context->saved_data["channels_last"].toBool()};
    std::ranges::copy(context->saved_data["sizes"].toIntVector(), images.sizes.begin());
    if (at::GradMode::is_enabled()) return {spread_with_graph(gradients[0], winner, images)};
    return {pool_relu_backward(gradients[0], winner, images, level())};
  }
};

}  // namespace
}  // namespace lockstep::kernels

namespace lockstep {

at::Tensor pool_relu(const at::Tensor& x) {
  if (!kernels::is_known(x)) return at::max_pool2d(at::relu(x), 2);
  return kernels::PoolRelu::apply(x);
}

}  // namespace lockstep
