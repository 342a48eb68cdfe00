#include "tools/bench/work.h"

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <cmath>
#include <string_view>

namespace lockstep::bench {
namespace {

using Inputs = c10::ArrayRef<const c10::IValue>;

// libtorch takes only plain functions as callbacks
std::atomic<double> forward_work = 0, backward_work = 0;

double numel(const c10::IValue& tensor) {
  return static_cast<double>(tensor.toTensor().numel());
}

// [..., n, k] x [..., k, m] or [k]
template <size_t first>
double product(const Inputs& inputs) {
  const auto& right = inputs[first + 1].toTensor();
  return 2 * numel(inputs[first]) * (right.dim() > 1 ? static_cast<double>(right.size(-1)) : 1);
}

// What each place of `places` costs: one of the output, or of the input of a transposed convolution.
double convolution(double places, const at::Tensor& weight, bool transposed) {
  const auto each = static_cast<double>(weight.numel());
  return 2 * places * (transposed ? each / static_cast<double>(weight.size(0)) : each);
}

double nth(const std::vector<int64_t>& numbers, size_t i) {
  return static_cast<double>(numbers.size() == 1 ? numbers[0] : numbers[i]);
}

// A batch's output without its channels.
double output_places(const Inputs& inputs) {
  const auto& input = inputs[0].toTensor();
  const auto& weight = inputs[1].toTensor();
  const auto strides = inputs[3].toIntVector(), paddings = inputs[4].toIntVector(),
             dilations = inputs[5].toIntVector();
  auto places = static_cast<double>(input.size(0));
  for (int64_t i = 0; i + 2 < input.dim(); ++i) {
    const auto n = static_cast<size_t>(i);
    const auto size = static_cast<double>(input.size(i + 2)),
               kernel = static_cast<double>(weight.size(i + 2));
    const double room = size + 2 * nth(paddings, n) - nth(dilations, n) * (kernel - 1) - 1;
    places *= std::floor(room / nth(strides, n)) + 1;
  }
  return places;
}

double convolve(const Inputs& inputs) {
  const bool transposed = inputs[6].toBool();
  return convolution(transposed ? numel(inputs[0]) : output_places(inputs), inputs[1].toTensor(), transposed);
}

double convolve_back(const Inputs& inputs) {
  const auto& gradient = inputs[0].toTensor();
  const bool transposed = inputs[7].toBool();
  const double places = transposed
                            ? numel(inputs[1])
                            : static_cast<double>(gradient.numel()) / static_cast<double>(gradient.size(1));
  const auto wanted = inputs[10].toBoolList();  // of input, weight, bias
  return (wanted.get(0) + wanted.get(1)) * convolution(places, inputs[2].toTensor(), transposed);
}

// Queries against keys, and their weights against values; backward makes the weights again.
template <size_t query, int products>
double attend(const Inputs& inputs) {
  return products * 2 * numel(inputs[query]) * static_cast<double>(inputs[query + 1].toTensor().size(-2));
}

struct Row {
  std::string_view name;
  double (*count)(const Inputs& inputs);
};

// Higher operators (linear, matmul, einsum, conv2d) call one of these.
constexpr Row kRows[] = {
    {"aten::mm", product<0>},
    {"aten::addmm", product<1>},
    {"aten::bmm", product<0>},
    {"aten::baddbmm", product<1>},
    {"aten::mv", product<0>},
    {"aten::addmv", product<1>},
    {"aten::_convolution", convolve},
    {"aten::convolution_backward", convolve_back},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", attend<0, 2>},
    {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attend<1, 5>},
};

// One may call another: autocast the same in fewer bits, a convolution a product.
thread_local int depth = 0;
struct Inside : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& called) {
  const std::string_view name = called.name();
  for (const auto& row : kRows) {
    if (row.name != name) continue;
    const bool backward = torch::autograd::get_current_node() != nullptr;
    if (depth++ == 0) (backward ? backward_work : forward_work) += row.count(called.inputs());
    return std::make_unique<Inside>();
  }
  return nullptr;
}

void leave(const at::RecordFunction& /*called*/, at::ObserverContext* inside) {
  if (inside) --depth;
}

}  // namespace

Work count_work(const std::function<void()>& steps) {
  forward_work = backward_work = 0;
  const auto handle = at::addGlobalCallback(
      at::RecordFunctionCallback(enter, leave).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  const auto at_end = c10::make_scope_exit([&] { at::removeCallback(handle); });
  steps();
  return {forward_work, backward_work};
}

}  // namespace lockstep::bench
