// The plug-in's one entry: the table that lockstep/kernels/fast_kernels.h describes.

#include "fast/table.h"

extern "C" __attribute__((visibility("default"))) const lockstep::kernels::FastKernels*
lockstep_fast_table() {
  using namespace lockstep;
  using kernels::DenseLayer, kernels::FastKernels;
  static const FastKernels table = {
      .version = kernels::kFastTableVersion,
      .conv_pool_relu = kernels::conv_pool_relu,
      .make_dense_chain =
          [](std::vector<DenseLayer> layers) {
            return kernels::make_dense_chain(std::move(layers), kernels::level());
          },
      .cross_entropy = kernels::cross_entropy,
      .mean_squared_error = kernels::mean_squared_error,
  };
  return &table;
}
