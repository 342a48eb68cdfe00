#include "tools/model_check/sample.h"

#include <torch/types.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/pt.h"
#include "tools/model_check/trial.h"

namespace lockstep::model_check {
namespace {

constexpr std::string_view kOutputStart = "output.", kGradientStart = "grad.";
constexpr const char* kWriteAgain = "`lockstep model template --sample` prints the Python that writes one";

struct Tolerance {
  double of_largest, least;
};

Tolerance tolerance_of(at::ScalarType dtype) {
  if (dtype == at::kHalf || dtype == at::kBFloat16) return {1e-2, 1e-3};
  if (at::isFloatingType(dtype) || at::isComplexType(dtype)) return {1e-4, 1e-6};
  return {0, 0};
}

at::Tensor plain(const at::Tensor& tensor) {
  const auto own = tensor.detach().contiguous();
  return own.is_complex() ? at::view_as_real(own.resolve_conj()) : own;
}

bool have_same_bits(const at::Tensor& here, const at::Tensor& there) {
  return here.nbytes() == 0 || std::memcmp(here.const_data_ptr(), there.const_data_ptr(), here.nbytes()) == 0;
}

double largest_of(const at::Tensor& numbers) {
  return numbers.numel() == 0 ? 0 : numbers.max().item<double>();
}

/// Where both are NaN, or the same infinity, there is no difference.
double difference_of(const at::Tensor& here, const at::Tensor& there) {
  const auto same = here.eq(there).logical_or(here.isnan().logical_and(there.isnan()));
  return largest_of((here - there).abs().masked_fill(same, 0.0));
}

std::string kind_of(const at::Tensor& tensor) {
  return format("{} {}", c10::toString(tensor.scalar_type()), c10::str(tensor.sizes()));
}

Compared compare(const std::string& name, const at::Tensor& here, const at::Tensor& there) {
  Compared one{.name = name};
  if (here.sizes() != there.sizes() || here.scalar_type() != there.scalar_type()) {
    one.words = format("{} here, {} in Python", kind_of(here), kind_of(there));
    return one;
  }
  const auto ours = plain(here), theirs = plain(there);
  one.same_bits = have_same_bits(ours, theirs);
  const auto numbers = theirs.to(at::kDouble);
  one.largest = largest_of(numbers.nan_to_num(0.0, 0.0, 0.0).abs());
  one.difference = difference_of(ours.to(at::kDouble), numbers);
  const auto [of_largest, least] = tolerance_of(there.scalar_type());
  one.agrees = one.difference <= of_largest * one.largest + least;
  one.words = one.same_bits ? "the same bits"
                            : format("differs, at most {:.2g} (of {:.2g}): {}", one.difference, one.largest,
                                     one.agrees ? "within the tolerance" : "too much");
  return one;
}

bool is_zero(const at::Tensor& tensor) {
  return !tensor.defined() || !tensor.detach().to(at::kBool).any().item<bool>();
}

Compared compare_gradient(const std::string& name, const at::Tensor& here, const at::Tensor& there) {
  const bool none_here = is_zero(here);
  if (none_here && !here.defined() && is_zero(there))
    return {.name = name, .words = "none here, 0 in Python", .agrees = true};
  auto one = compare(name, here.defined() ? here : at::zeros_like(there), there);
  one.is_lost = none_here && !one.agrees;
  if (one.is_lost)
    one.words = format("{} here, up to {:.2g} in Python", here.defined() ? "0" : "none", one.largest);
  return one;
}

/// The number of "output.3"; InputError for what is none of the model's.
size_t number_of(const std::string& name, size_t count, const std::string& path) {
  size_t number = 0;
  const auto* end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + kOutputStart.size(), end, number);
  if (read.ec == std::errc() && read.ptr == end && number < count) return number;
  throw InputError(format("the sample holds {}, and the model gives {} output{}", base::printable(name),
                          count, count == 1 ? "" : "s"),
                   path, kWriteAgain);
}

std::vector<c10::IValue> inputs_in(const Tree& tree, const ExportedFacts& facts, const std::string& path) {
  std::vector<c10::IValue> inputs;
  for (size_t i = 0; i < facts.inputs.size(); ++i) {
    const auto name = format("input.{}", i);
    const auto found = find(tree, name);
    if (dtype_of(facts.inputs[i]) && !found)
      throw InputError(format("the sample lacks {}: the model's input {}", name, facts.inputs[i].name), path,
                       kWriteAgain);
    inputs.push_back(found ? c10::IValue(as_tensor(*found, name)) : c10::IValue());
  }
  return inputs;
}

/// A tied parameter goes by any of its names.
std::map<std::string, at::Tensor> parameters_of(const ExportedNet& net) {
  std::map<std::string, at::Tensor> all;
  for (const auto& entry : net.named_parameters()) all.emplace(entry.key(), entry.value());
  for (const auto& [second, first] : net.tied()) {
    if (const auto found = all.find(first); found != all.end()) all.emplace(second, found->second);
  }
  return all;
}

void check_gradients(const ModelSample::Named& gradients, const ExportedNet& net, const std::string& path) {
  const auto parameters = parameters_of(net);
  for (const auto& [name, gradient] : gradients) {
    if (parameters.contains(name.substr(kGradientStart.size()))) continue;
    throw InputError(
        format("the sample holds {}, and the model has no such parameter", base::printable(name)), path,
        "was it written with another model? " + std::string(kWriteAgain));
  }
}

/// Those here of parameters to which Python's backward gave none.
void add_unexpected(const ExportedNet& net, const std::set<at::TensorImpl*>& expected,
                    std::vector<Compared>& all) {
  for (const auto& entry : net.named_parameters()) {
    const auto& parameter = entry.value();
    if (expected.contains(parameter.unsafeGetTensorImpl()) || is_zero(parameter.grad())) continue;
    all.push_back({.name = std::string(kGradientStart) + entry.key(), .words = "none in Python"});
  }
}

std::vector<Compared> compare_gradients(const ModelSample::Named& gradients, const ExportedNet& net) {
  const auto parameters = parameters_of(net);
  std::set<at::TensorImpl*> expected;
  std::vector<Compared> all;
  for (const auto& [name, there] : gradients) {
    const auto& parameter = parameters.at(name.substr(kGradientStart.size()));
    expected.insert(parameter.unsafeGetTensorImpl());
    all.push_back(compare_gradient(name, parameter.grad(), there));
  }
  if (!gradients.empty()) add_unexpected(net, expected, all);
  return all;
}

bool all_agree(const std::vector<Compared>& all) {
  return std::all_of(all.begin(), all.end(), [](const Compared& one) { return one.agrees; });
}

}  // namespace

bool Comparison::agrees() const {
  return all_agree(outputs) && all_agree(gradients);
}

bool Comparison::lost_backward() const {
  const bool some_lost =
      std::any_of(gradients.begin(), gradients.end(), [](const Compared& one) { return one.is_lost; });
  return some_lost || (all_agree(outputs) && !all_agree(gradients));
}

ModelSample read_model_sample(const std::string& path, const ExportedNet& net) {
  const auto tree = read_checkpoint_file(path);
  ModelSample sample{.inputs = inputs_in(tree, net.facts(), path)};
  for (const auto& [key, value] : items(tree)) {
    const auto& name = as_string(key, "a name in the sample");
    if (name.starts_with(kOutputStart)) {
      number_of(name, net.facts().outputs.size(), path);
      sample.outputs.emplace_back(name, as_tensor(value, name));
    } else if (name.starts_with(kGradientStart)) {
      sample.gradients.emplace_back(name, as_tensor(value, name));
    }
  }
  check_gradients(sample.gradients, net, path);
  if (!sample.outputs.empty()) return sample;
  throw InputError("the sample holds no output.0: there is nothing to compare", path, kWriteAgain);
}

Comparison compare_with_python(const ModelSample& sample, const ExportedNet& net,
                               const std::vector<c10::IValue>& outputs) {
  Comparison comparison;
  for (const auto& [name, there] : sample.outputs) {
    const auto& here = outputs.at(number_of(name, outputs.size(), name));
    comparison.outputs.push_back(here.isTensor() ? compare(name, here.toTensor(), there)
                                                 : Compared{.name = name, .words = "no tensor here"});
  }
  comparison.gradients = compare_gradients(sample.gradients, net);
  return comparison;
}

}  // namespace lockstep::model_check
