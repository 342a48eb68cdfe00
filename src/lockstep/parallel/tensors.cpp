#include "lockstep/parallel/tensors.h"

namespace lockstep {

void for_each_tensor(c10::IValue& value, const TensorVisitor& visit, bool copies) {
  const auto walked = [&](c10::IValue item) {
    for_each_tensor(item, visit, copies);
    return item;
  };
  if (value.isTensor()) {
    at::Tensor tensor = value.toTensor();
    visit(tensor);
    value = tensor;
  } else if (value.isList()) {
    if (copies) value = value.toList().copy();
    const auto list = value.toList();
    for (size_t i = 0; i < list.size(); ++i) list.set(i, walked(list.get(i)));
  } else if (value.isTuple()) {
    std::vector<c10::IValue> items;
    for (const auto& item : value.toTupleRef().elements()) items.push_back(walked(item));
    value = c10::ivalue::Tuple::create(std::move(items));
  } else if (value.isGenericDict()) {
    if (copies) value = value.toGenericDict().copy();
    for (const auto& item : value.toGenericDict()) item.setValue(walked(item.value()));
  }
}

}  // namespace lockstep
