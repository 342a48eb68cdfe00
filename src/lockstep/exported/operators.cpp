#include "lockstep/exported/operators.h"

#include <torch/version.h>

#include <algorithm>
#include <string_view>

#include "lockstep/base/format.h"
#include "lockstep/exported/field.h"

namespace lockstep::exported {
namespace {

constexpr std::string_view kSpace = "torch.ops.aten.";

constexpr std::string_view kAllowed[] = {
#include "lockstep/exported/operators.inc"
};
static_assert(std::ranges::is_sorted(kAllowed));

constexpr std::string_view kDraws[] = {
    "bernoulli",   "bernoulli_",   "binomial",  "cauchy",     "cauchy_",
    "exponential", "exponential_", "geometric", "geometric_", "log_normal",
    "log_normal_", "multinomial",  "normal",    "normal_",    "normal_functional",
    "poisson",     "rand",         "rand_like", "randint",    "randint_like",
    "randn",       "randn_like",   "random",    "random_",    "randperm",
    "uniform",     "uniform_",
};
static_assert(std::ranges::is_sorted(kDraws));

[[noreturn]] void refuse_space(const std::string& target) {
  throw Refusal(
      format("the operator {} is not libtorch's own", shown(target)),
      "write it with operators of torch alone: a custom operator needs the library that defines it");
}

// A result that is one of the arguments, too, is what libtorch's kernels do not all expect. This one does,
// with its check: torch's spectral_norm normalises so.
constexpr std::string_view kMayWriteOut = "torch.ops.aten.div.out";

c10::OperatorHandle checked(const c10::OperatorHandle& found, const std::string& target) {
  if (target == kMayWriteOut) return found;
  if (std::ranges::none_of(found.schema().arguments(), &c10::Argument::is_out)) return found;
  throw Refusal(format("the operator {} writes into a tensor that it is given", shown(target)),
                "write that part of the model without out=");
}

}  // namespace

c10::OperatorHandle find_operator(const std::string& target) {
  if (!target.starts_with(kSpace)) refuse_space(target);
  const auto rest = target.substr(kSpace.size());
  const auto dot = rest.find('.');
  if (dot == std::string::npos) refuse_space(target);
  const std::string name = rest.substr(0, dot);
  auto overload = rest.substr(dot + 1);
  if (overload == "default") overload.clear();
  if (!std::ranges::binary_search(kAllowed, name)) {
    throw Refusal(format("the operator {} is not one that an exported model may call", shown(target)),
                  "export without run_decompositions(), and write that part with other operators of torch");
  }
  const auto found = c10::Dispatcher::singleton().findSchema({"aten::" + name, overload});
  if (found) return checked(*found, target);
  throw Refusal(format("this libtorch ({}) has no operator {}", TORCH_VERSION, shown(target)),
                "export the model with a torch of this version, or take a lockstep with a newer libtorch");
}

bool always_draws(const std::string& name) {
  constexpr std::string_view space = "aten::";
  return name.starts_with(space) &&
         std::ranges::binary_search(kDraws, std::string_view(name).substr(space.size()));
}

}  // namespace lockstep::exported
