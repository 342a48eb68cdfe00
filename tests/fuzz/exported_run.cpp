#include "fuzz/exported_run.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <charconv>
#include <cstdio>

#include "fuzz/apart.h"
#include "lockstep/base/error.h"
#include "lockstep/models/exported.h"

namespace lockstep::fuzz {
namespace {

using Values = std::vector<c10::IValue>;

constexpr int64_t kFreeSize = 2, kMostNumbers = 1 << 16;

int64_t size_for(const std::string& size, const ExportedFacts& facts) {
  int64_t number = kFreeSize;
  std::from_chars(size.data(), size.data() + size.size(), number);
  const auto range = facts.sizes.find(size);
  return range == facts.sizes.end() ? number : std::max(kFreeSize, range->second.first);
}

at::Tensor tensor_for(const ExportedValue& input, at::ScalarType dtype, const ExportedFacts& facts) {
  std::vector<int64_t> sizes;
  int64_t left = kMostNumbers;
  for (const auto& size : input.sizes) {
    sizes.push_back(size_for(size, facts));
    if (sizes.back() < 0 || sizes.back() > left) throw InputError("an input is too large");
    left /= std::max<int64_t>(sizes.back(), 1);
  }
  return at::isFloatingType(dtype) || at::isComplexType(dtype) ? at::randn(sizes).to(dtype)
                                                               : at::randint(2, sizes).to(dtype);
}

Values inputs_for(const ExportedFacts& facts) {
  const auto& dtypes = c10::getStringToDtypeMap();
  Values inputs;
  for (const auto& input : facts.inputs) {
    const auto dtype = dtypes.find(input.kind);
    if (input.kind == "int")
      inputs.emplace_back(kFreeSize);
    else if (dtype == dtypes.end())
      inputs.emplace_back();
    else
      inputs.emplace_back(tensor_for(input, dtype->second, facts));
  }
  return inputs;
}

void backward_from(const Values& outputs) {
  at::Tensor sum;
  for (const auto& output : outputs) {
    if (!output.isTensor() || !output.toTensor().requires_grad()) continue;
    auto numbers = output.toTensor();
    if (numbers.is_complex()) numbers = at::view_as_real(numbers.resolve_conj());
    const auto part = numbers.to(at::kFloat).square().mean();
    sum = sum.defined() ? sum + part : part;
  }
  if (sum.defined() && sum.requires_grad()) sum.backward();
}

/// What is thrown where reading a file let out what is no Error; run_apart() takes it for a failure.
struct NoneOfOurs {};

std::shared_ptr<ExportedNet> loaded(const std::string& path) {
  try {
    return load_exported(path);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    throw NoneOfOurs();
  }
}

void run_both_ways(ExportedNet& net) {
  torch::manual_seed(0);
  for (const bool training : {true, false}) {
    net.train(training);
    backward_from(net.run(inputs_for(net.facts())));
  }
}

}  // namespace

void run_exported(const std::string& path) {
  if (run_apart([&] { run_both_ways(*loaded(path)); }) != Ended::well)
    throw Error("the model is refused, or does not run");
}

}  // namespace lockstep::fuzz
