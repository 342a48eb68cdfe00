#include "lockstep/exported/operators.h"

#include <torch/version.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "lockstep/base/format.h"
#include "lockstep/exported/field.h"

namespace lockstep::exported {
namespace {

constexpr std::string_view kSpace = "torch.ops.aten.";

// Names that begin with an underscore are libtorch's own, and some trust what they are given: those that
// torch.export writes and that check their arguments.
constexpr std::array kPrivate = {
    "_assert_async",
    "_assert_scalar",
    "_assert_tensor_metadata",
    "_conj",
    "_convolution",
    "_native_batch_norm_legit",
    "_log_softmax",
    "_pack_padded_sequence",
    "_pad_packed_sequence",
    "_reshape_alias",
    "_scaled_dot_product_attention_math",
    "_softmax",
    "_to_copy",
    "_unsafe_view",
    "_weight_norm",
    "_weight_norm_interface",
};

// Files, other storages, global state, autograd itself, and layouts whose kernels trust their indices.
constexpr std::array kRefused = {
    "from_file",    "set_",        "set_data", "record_stream", "manual_seed", "requires_grad_",
    "retain_grad",  "backward",    "rename",   "rename_",       "data",        "values",
    "crow_indices", "col_indices", "indices",  "ccol_indices",  "row_indices", "resize_as_sparse_",
};
constexpr std::array kRefusedBeginnings = {"sparse_", "to_sparse", "to_mkldnn", "mkldnn_",
                                           "cudnn_",  "miopen_",   "quantize",  "quantized_",
                                           "q_",      "fbgemm_",   "int_repr",  "nested_"};

constexpr std::array kDraws = {
    "bernoulli", "bernoulli_", "cauchy_",  "exponential_", "geometric_", "log_normal_", "multinomial",
    "normal",    "normal_",    "poisson",  "rand",         "rand_like",  "randint",     "randint_like",
    "randn",     "randn_like", "randperm", "random_",      "uniform_",
};

template <class Names>
bool is_among(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_allowed(std::string_view name) {
  const bool is_python_operator = name.starts_with("__");  // x & y
  if (name.starts_with('_') && !is_python_operator) return is_among(kPrivate, name);
  const bool refused = std::any_of(kRefusedBeginnings.begin(), kRefusedBeginnings.end(),
                                   [&](std::string_view beginning) { return name.starts_with(beginning); });
  return !refused && !is_among(kRefused, name);
}

[[noreturn]] void refuse_space(const std::string& target) {
  throw Refusal(
      format("the operator {} is not libtorch's own", shown(target)),
      "write it with operators of torch alone: a custom operator needs the library that defines it");
}

}  // namespace

c10::OperatorHandle find_operator(const std::string& target) {
  if (!target.starts_with(kSpace)) refuse_space(target);
  const auto rest = target.substr(kSpace.size());
  const auto dot = rest.find('.');
  if (dot == std::string::npos) refuse_space(target);
  const auto name = rest.substr(0, dot);
  auto overload = rest.substr(dot + 1);
  if (overload == "default") overload.clear();
  if (!is_allowed(name)) {
    throw Refusal(format("the operator {} is not one that an exported model may call", shown(target)),
                  "write that part of the model with other operators of torch");
  }
  const auto found = c10::Dispatcher::singleton().findSchema({"aten::" + name, overload});
  if (found) return *found;
  throw Refusal(format("this libtorch ({}) has no operator {}", TORCH_VERSION, shown(target)),
                "export the model with a torch of this version, or take a lockstep with a newer libtorch");
}

bool always_draws(const std::string& name) {
  constexpr std::string_view space = "aten::";
  return name.starts_with(space) && is_among(kDraws, std::string_view(name).substr(space.size()));
}

}  // namespace lockstep::exported
