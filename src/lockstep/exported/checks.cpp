// Checks of the arguments of functions that read or write elsewhere where those do not fit.
#include "lockstep/exported/graph.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::exported {
namespace {

using Values = std::vector<c10::IValue>;

constexpr int64_t kMostHidden = int64_t{1} << 32;  // an expanded tensor may be of any size

void expect(const char* what, const at::Tensor& tensor, at::IntArrayRef sizes) {
  if (tensor.defined() && tensor.sizes() == sizes) return;
  throw Error(format("{} has the shape {}, but must have {}", what,
                     tensor.defined() ? c10::str(tensor.sizes()) : "none", c10::str(sizes)));
}

// lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first), as
// torch.nn.LSTM calls it: oneDNN's takes the sizes of the first for those of all others.
void check_lstm(const Values& values) {
  const auto& input = values[0].toTensor();
  const auto state = values[1].toTensorVector(), weights = values[2].toTensorVector();
  if (input.dim() != 3 || state.size() != 2 || state[0].dim() != 3 || state[1].dim() != 3)
    throw Error("lstm takes a batch of sequences, and two states of three dimensions");
  const bool has_biases = values[3].toBool();
  const auto layers = values[4].toInt(), directions = int64_t{values[7].toBool() ? 2 : 1};
  const auto cells = state[1].size(0);  // one for each layer and direction
  if (layers < 1 || cells % directions != 0 || cells / directions != layers)
    throw Error(format("lstm has {} layers, but {} states", layers, cells));
  const auto batch = input.size(values[8].toBool() ? 0 : 1), hidden = state[1].size(2);
  const auto shown = state[0].size(2);  // less than hidden if it is projected
  if (std::max(hidden, shown) > kMostHidden)
    throw Error(format("lstm has states of {} numbers", std::max(hidden, shown)));
  expect("the first state", state[0], {cells, batch, shown});
  expect("the second state", state[1], {cells, batch, hidden});
  size_t next = 0;
  const auto expect_weight = [&](const char* what, at::IntArrayRef sizes) {
    if (next == weights.size()) throw Error(format("lstm has only {} weights", next));
    expect(what, weights[next++], sizes);
  };
  for (int64_t cell = 0; cell < cells; ++cell) {
    expect_weight("a weight of the input",
                  {4 * hidden, cell < directions ? input.size(2) : shown * directions});
    expect_weight("a weight of the state", {4 * hidden, shown});
    for (int bias = 0; has_biases && bias < 2; ++bias) expect_weight("a bias", {4 * hidden});
    if (shown != hidden) expect_weight("a projection", {shown, hidden});
  }
  if (next != weights.size()) throw Error(format("lstm has {} weights, but needs {}", weights.size(), next));
}

// _weight_norm(v, g, dim): along the first or last dimension the kernel reads a number of g for each of v.
void check_weight_norm(const Values& values) {
  const auto &v = values[0].toTensor(), &g = values[1].toTensor();
  const auto dim = values[2].toInt();
  if (v.dim() == 0) throw Error("the norm of a weight without dimensions");
  if ((dim == 0 || dim == v.dim() - 1) && g.numel() != v.size(dim))
    throw Error(format("a weight of {} with norms of {}", c10::str(v.sizes()), c10::str(g.sizes())));
}

// div(self, other, *, out): for a result of another shape `out` would be given other memory.
void check_div_out(const Values& values) {
  const auto fits = at::infer_size(values[0].toTensor().sizes(), values[1].toTensor().sizes());
  expect("the tensor that div writes into", values[2].toTensor(), fits);
}

}  // namespace

ArgumentCheck find_check(const std::string& name) {
  static const std::map<std::string, ArgumentCheck> known = {{"aten::_weight_norm", check_weight_norm},
                                                             {"aten::div.out", check_div_out},
                                                             {"aten::lstm.input", check_lstm}};
  const auto found = known.find(name);
  return found == known.end() ? nullptr : found->second;
}

}  // namespace lockstep::exported
