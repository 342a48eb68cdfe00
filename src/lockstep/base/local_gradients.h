#pragma once
// Gradients that are this rank's alone although ddp() averages those of their parameters over the ranks:
// ddp() tells of them, an optimiser asks before it steps.

#include <string>
#include <vector>

namespace lockstep::base {

/// Each watch of a parameter begins with the first and ends with the second. Where two live, as of wrappers
/// that share a module, neither knows of the other's exchanges, and nothing is marked.
void watch_gradient(const void* parameter);
void unwatch_gradient(const void* parameter);

/// `parameter` and `gradient` are the addresses of what libtorch holds for the two.
void mark_local_gradient(const void* parameter, const void* gradient, const std::string& name);
void unmark_local_gradient(const void* parameter);
bool is_marked_local(const void* parameter);
/// One load: asked at every step.
bool has_local_gradients();
/// The parameter's name where its gradient is still the one that was marked, else empty.
std::string local_gradient(const void* parameter, const void* gradient);

/// What to write instead.
constexpr const char* kExchangeGradients =
    "call the model that ddp() gave, not its module(), once before each backward; where gradients are meant "
    "to stay "
    "local, hold model->no_sync()";
/// "'a.weight' and 3 more", the first of them.
std::string first_of(const std::vector<std::string>& names);

}  // namespace lockstep::base
