#include "parallel/tensors.h"

namespace lockstep {
namespace {

void visit_list(const c10::List<c10::IValue>& list, const TensorVisitor& visit) {
  for (size_t i = 0; i < list.size(); ++i) {
    c10::IValue element = list.get(i);
    for_each_tensor(element, visit);
    list.set(i, element);
  }
}

c10::IValue visit_tuple(const c10::ivalue::Tuple& tuple, const TensorVisitor& visit) {
  std::vector<c10::IValue> elements(tuple.elements().begin(), tuple.elements().end());
  for (auto& element : elements) for_each_tensor(element, visit);
  return c10::ivalue::Tuple::create(std::move(elements));
}

void visit_dict(c10::Dict<c10::IValue, c10::IValue> dict, const TensorVisitor& visit) {
  for (const auto& item : dict) {
    c10::IValue value = item.value();
    for_each_tensor(value, visit);
    item.setValue(value);
  }
}

}  // namespace

void for_each_tensor(c10::IValue& value, const TensorVisitor& visit) {
  if (value.isTensor()) {
    at::Tensor tensor = value.toTensor();
    visit(tensor);
    value = tensor;
  } else if (value.isList()) {
    visit_list(value.toList(), visit);
  } else if (value.isTuple()) {
    value = visit_tuple(value.toTupleRef(), visit);
  } else if (value.isGenericDict()) {
    visit_dict(value.toGenericDict(), visit);
  }
}

}  // namespace lockstep
