#pragma once
// Gradients that ddp() did not average although it wraps their parameters. Optimizers check before a step.

#include <string>
#include <vector>

namespace lockstep::base {

/// A wrapper begins and ends to watch a parameter. If two wrappers share a module, neither knows the other's
/// exchanges, and nothing is marked.
void watch_gradient(const void* parameter);
void unwatch_gradient(const void* parameter);

/// `parameter` and `gradient` are addresses of libtorch's TensorImpl.
void mark_local_gradient(const void* parameter, const void* gradient, const std::string& name);
void unmark_local_gradient(const void* parameter);
bool is_marked_local(const void* parameter);
/// One atomic load, because it runs at every step.
bool has_local_gradients();
/// The parameter's name if its gradient is still the marked one, else empty.
std::string local_gradient(const void* parameter, const void* gradient);

/// The hint for errors about such gradients.
constexpr const char* kExchangeGradients =
    "call the model that ddp() returned, not its module(), once before each backward; to keep gradients "
    "local on purpose, use model->no_sync()";
/// "'a.weight' and 3 more"
std::string first_of(const std::vector<std::string>& names);

}  // namespace lockstep::base
