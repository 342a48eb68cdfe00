#include "lockstep/parallel/tensors.h"

namespace lockstep {
namespace {

// How to go on inside a container: for_each_tensor itself, or the one that copies.
using Walk = void (*)(c10::IValue& value, const TensorVisitor& visit);

void visit_list(c10::List<c10::IValue> list, const TensorVisitor& visit, Walk walk) {
  for (size_t i = 0; i < list.size(); ++i) {
    c10::IValue element = list.get(i);
    walk(element, visit);
    list.set(i, element);
  }
}

c10::IValue visit_tuple(const c10::ivalue::Tuple& tuple, const TensorVisitor& visit, Walk walk) {
  std::vector<c10::IValue> elements(tuple.elements().begin(), tuple.elements().end());
  for (auto& element : elements) walk(element, visit);
  return c10::ivalue::Tuple::create(std::move(elements));
}

void visit_dict(const c10::Dict<c10::IValue, c10::IValue>& dict, const TensorVisitor& visit, Walk walk) {
  for (const auto& item : dict) {
    c10::IValue value = item.value();
    walk(value, visit);
    item.setValue(value);
  }
}

void visit_value(c10::IValue& value, const TensorVisitor& visit, Walk walk) {
  if (value.isTensor()) {
    at::Tensor tensor = value.toTensor();
    visit(tensor);
    value = tensor;
  } else if (value.isList()) {
    visit_list(value.toList(), visit, walk);
  } else if (value.isTuple()) {
    value = visit_tuple(value.toTupleRef(), visit, walk);
  } else if (value.isGenericDict()) {
    visit_dict(value.toGenericDict(), visit, walk);
  }
}

}  // namespace

void for_each_tensor(c10::IValue& value, const TensorVisitor& visit) {
  visit_value(value, visit, for_each_tensor);
}

void for_each_tensor_of_copy(c10::IValue& value, const TensorVisitor& visit) {
  if (value.isList()) value = value.toList().copy();
  if (value.isGenericDict()) value = value.toGenericDict().copy();
  visit_value(value, visit, for_each_tensor_of_copy);
}

}  // namespace lockstep
