#include "lockstep/kernels/flattened.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/util/BFloat16.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/kernels/vector.h"

namespace lockstep::kernels {

void flatten_images(const float* x, int64_t images, int64_t places, int64_t channels, uint16_t* to,
                    SimdLevel level) {
  const int64_t size = places * channels;
  at::parallel_for(0, images, 1, [&](int64_t begin, int64_t end) {
    const Scratch<float> turned(size);
    run_at(level, [&](auto lanes) LOCKSTEP_INLINE {
      for (int64_t image = begin; image < end; ++image) {
        turn(lanes, x + image * size, channels, places, channels, turned.get());
        for (int64_t i = 0; i < size; ++i)
          to[image * size + i] = c10::detail::round_to_nearest_even(turned.get()[i]);
      }
    });
  });
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool is_known(const at::Tensor& x) {
  return x.is_cpu() && x.layout() == at::kStrided && x.scalar_type() == at::kFloat && x.dim() == 4 &&
         x.numel() > 0 && x.is_contiguous(at::MemoryFormat::ChannelsLast) &&
         at::autocast::is_autocast_enabled(at::kCPU) &&
         at::autocast::get_autocast_dtype(at::kCPU) == at::kBFloat16;
}

struct FlattenFunction : torch::autograd::Function<FlattenFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->saved_data["sizes"] = x.sizes();
    auto rows = at::empty({x.size(0), x.size(1) * x.size(2) * x.size(3)}, x.options().dtype(at::kBFloat16));
    flatten_images(x.const_data_ptr<float>(), x.size(0), x.size(2) * x.size(3), x.size(1),
                   static_cast<uint16_t*>(rows.data_ptr()), level());
    return rows;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {gradients[0].to(at::kFloat).view(context->saved_data["sizes"].toIntVector())};
  }
};

}  // namespace
}  // namespace lockstep::kernels

namespace lockstep {

at::Tensor flattened(const at::Tensor& x) {
  return kernels::is_known(x) ? kernels::FlattenFunction::apply(x) : x.flatten(1);
}

}  // namespace lockstep
