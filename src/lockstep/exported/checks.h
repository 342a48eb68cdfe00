#pragma once
// What functions of libtorch take for granted of their arguments, as in Python a module around them has
// checked it.

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace lockstep::exported {

/// Throws Error for arguments with which the function would read or write elsewhere.
using ArgumentCheck = void (*)(const std::vector<c10::IValue>& arguments);

/// By an operator's name with its overload, "aten::lstm.input"; nullptr for a function that checks for
/// itself.
ArgumentCheck find_check(const std::string& name);

}  // namespace lockstep::exported
