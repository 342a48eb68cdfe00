#pragma once
// Gradients that are this rank's alone although ddp() averages those of their parameters over the ranks:
// ddp() tells of them, an optimiser asks before it steps.

#include <string>
#include <vector>

namespace lockstep::base {

/// `parameter` and `gradient` are the addresses of what libtorch holds for the two.
void mark_local_gradient(const void* parameter, const void* gradient, const std::string& name);
void unmark_local_gradient(const void* parameter);
/// One load: asked at every step.
bool has_local_gradients();
/// The parameter's name where its gradient is still the one that was marked, else empty.
std::string local_gradient(const void* parameter, const void* gradient);

/// What happened and what to write instead, of the parameters of these names.
[[noreturn]] void refuse_local_gradients(const std::vector<std::string>& names, const std::string& what,
                                         const std::string& where);

}  // namespace lockstep::base
