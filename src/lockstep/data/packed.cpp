#include "lockstep/data/packed.h"

#include <ATen/ATen.h>

#include <utility>

namespace lockstep::data {

at::Tensor view_of(std::shared_ptr<base::FileMap> map, char* place, at::IntArrayRef shape,
                   at::ScalarType type) {
  return at::from_blob(
      place, shape, [map = std::move(map)](void*) {}, at::TensorOptions(type));
}

}  // namespace lockstep::data
