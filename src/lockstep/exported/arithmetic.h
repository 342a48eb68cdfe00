#pragma once
// The Python functions on sizes and numbers that an exported graph may call.

#include <string>

#include "lockstep/exported/graph.h"

namespace lockstep::exported {

struct NamedArithmetic {
  Arithmetic run;
  size_t arguments;
};

/// By the name in the file, "_operator.add"; nullptr where there is none.
const NamedArithmetic* find_arithmetic(const std::string& name);

/// A number in a tensor's place, as Python's parser of arguments makes it: it does not decide a result's
/// dtype.
at::Tensor wrapped_number(const c10::IValue& value);

/// A number as an integer: True is 1.
int64_t integer_of(const c10::IValue& value);

}  // namespace lockstep::exported
