#include "lockstep/models/dense.h"

#include <set>

namespace lockstep {

bool is_all_dense(Net& net) {
  auto* const dense = dynamic_cast<Dense*>(&net);
  if (!dense) return false;
  std::set<const c10::TensorImpl*> theirs, all;
  size_t count = 0;
  for (const auto& layer : dense->dense_layers())
    for (const auto& parameter : layer->parameters()) theirs.insert(parameter.unsafeGetTensorImpl()), ++count;
  for (const auto& parameter : net.parameters()) all.insert(parameter.unsafeGetTensorImpl());
  return count > 0 && theirs == all && theirs.size() == count;
}

}  // namespace lockstep
