#include "tools/model_check/trial.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::model_check {
namespace {

constexpr int64_t kMadeUpSize = 2;

int64_t size_for(const std::string& size, const ExportedFacts& facts) {
  int64_t number = 0;
  const auto* end = size.data() + size.size();
  if (std::from_chars(size.data(), end, number).ptr == end) return number;
  if (const auto range = facts.sizes.find(size); range != facts.sizes.end())
    return std::min(std::max(kMadeUpSize, range->second.first), range->second.second);
  throw InputError("no input can be made up for the model: one of its sizes is " + size, "--against",
                   "give inputs that fit: `lockstep model template --sample` shows how Python writes them");
}

c10::IValue made_up(const ExportedValue& input, const ExportedFacts& facts) {
  const auto dtype = dtype_of(input);
  if (!dtype) return input.kind == "int" ? c10::IValue(kMadeUpSize) : c10::IValue();
  std::vector<int64_t> sizes;
  for (const auto& size : input.sizes) sizes.push_back(size_for(size, facts));
  if (at::isComplexType(*dtype)) return at::randn(sizes, *dtype);
  return at::isFloatingType(*dtype) ? at::randn(sizes).to(*dtype) : at::zeros(sizes, *dtype);
}

at::Tensor sum_of_squares(const std::vector<c10::IValue>& outputs) {
  at::Tensor sum;
  for (const auto& output : outputs) {
    if (!output.isTensor() || !at::isFloatingType(output.toTensor().scalar_type())) continue;
    const auto part = output.toTensor().to(at::kFloat).square().mean();
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

}  // namespace

std::optional<at::ScalarType> dtype_of(const ExportedValue& value) {
  const auto& known = c10::getStringToDtypeMap();
  const auto found = known.find(value.kind);
  // a kind of Python's own is called like an old name of torch's: "int" is int32 there
  if (found == known.end() || c10::getDtypeNames(found->second).first != value.kind) return std::nullopt;
  return found->second;
}

std::vector<c10::IValue> made_up_inputs(const ExportedFacts& facts) {
  torch::manual_seed(0);
  std::vector<c10::IValue> inputs;
  for (const auto& input : facts.inputs) inputs.push_back(made_up(input, facts));
  return inputs;
}

std::vector<c10::IValue> try_model(ExportedNet& net, std::vector<c10::IValue> inputs) {
  net.zero_grad();
  torch::manual_seed(0);
  auto outputs = net.run(std::move(inputs));
  if (const auto sum = sum_of_squares(outputs); sum.defined() && sum.requires_grad()) sum.backward();
  return outputs;
}

Reached reached(const ExportedNet& net) {
  Reached found;
  for (const auto& entry : net.named_parameters()) {
    if (!entry.value().requires_grad()) continue;
    ++found.trained;
    if (!entry.value().grad().defined()) found.without_gradient.push_back(entry.key());
  }
  return found;
}

}  // namespace lockstep::model_check
