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
  throw Error(format("{} has the shape {}, and {} fits", what,
                     tensor.defined() ? c10::str(tensor.sizes()) : "none", c10::str(sizes)));
}

// What its second state and its input say of an LSTM's sizes.
struct LstmSizes {
  int64_t cells, batch, input, hidden, shown, directions;  // a cell a layer and direction; shown: projected
  bool has_biases;

  bool projects() const { return shown != hidden; }
  size_t weights() const { return (has_biases ? 4 : 2) + (projects() ? 1 : 0); }
};

void check_cell(const LstmSizes& sizes, int64_t cell, const at::Tensor* weights) {
  const auto gates = 4 * sizes.hidden;
  const bool is_first = cell < sizes.directions;
  expect("a weight of the input", weights[0],
         {gates, is_first ? sizes.input : sizes.shown * sizes.directions});
  expect("a weight of the state", weights[1], {gates, sizes.shown});
  for (int bias = 2; sizes.has_biases && bias < 4; ++bias) expect("a bias", weights[bias], {gates});
  if (sizes.projects()) expect("a projection", weights[sizes.weights() - 1], {sizes.shown, sizes.hidden});
}

LstmSizes sizes_of(const Values& values) {
  const auto& input = values[0].toTensor();
  const auto state = values[1].toTensorVector();
  if (input.dim() != 3 || state.size() != 2 || state[0].dim() != 3 || state[1].dim() != 3)
    throw Error("lstm takes a batch of sequences, and two states of three dimensions");
  const LstmSizes sizes{.cells = state[1].size(0),
                        .batch = input.size(values[8].toBool() ? 0 : 1),
                        .input = input.size(2),
                        .hidden = state[1].size(2),
                        .shown = state[0].size(2),
                        .directions = values[7].toBool() ? 2 : 1,
                        .has_biases = values[3].toBool()};
  if (std::max(sizes.hidden, sizes.shown) > kMostHidden)
    throw Error(format("lstm has states of {} numbers", std::max(sizes.hidden, sizes.shown)));
  expect("the first state", state[0], {sizes.cells, sizes.batch, sizes.shown});
  expect("the second state", state[1], {sizes.cells, sizes.batch, sizes.hidden});
  return sizes;
}

// lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first), as
// torch.nn.LSTM calls it: oneDNN's takes the sizes of the first for those of all others.
void check_lstm(const Values& values) {
  const auto sizes = sizes_of(values);
  const auto weights = values[2].toTensorVector();
  const auto layers = values[4].toInt();
  if (layers < 1 || sizes.cells % sizes.directions != 0 || sizes.cells / sizes.directions != layers)
    throw Error(format("lstm has {} layers, and {} states for them", layers, sizes.cells));
  const auto wanted = sizes.weights() * static_cast<size_t>(sizes.cells);
  if (weights.size() != wanted)
    throw Error(format("lstm has {} weights, and takes {}", weights.size(), wanted));
  for (int64_t cell = 0; cell < sizes.cells; ++cell)
    check_cell(sizes, cell, &weights[sizes.weights() * static_cast<size_t>(cell)]);
}

// _weight_norm(v, g, dim): along the first or the last dimension its kernel reads a number of g for each of
// v.
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
