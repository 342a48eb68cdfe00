#pragma once
// The tensors in the boxed arguments and returns of an operator.
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <optional>

namespace lab {

/// A value whose tensors are replaced, alone or in lists.
template <class Replace>
c10::IValue with_tensors(const c10::IValue& value, const Replace& replace) {
  if (value.isTensor()) return replace(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(replace(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& tensor : value.toOptionalTensorVector()) {
      if (tensor && tensor->defined()) {
        list.push_back(replace(*tensor));
      } else {
        list.push_back(std::nullopt);
      }
    }
    return list;
  }
  return value;
}

template <class Visit>
void each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const auto& tensor : value.toOptionalTensorVector()) {
      if (tensor) visit(*tensor);
    }
  }
}

}  // namespace lab
