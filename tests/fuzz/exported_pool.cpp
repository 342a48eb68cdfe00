#include "fuzz/exported_pool.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <fstream>
#include <limits>

#include "fuzz/apart.h"
#include "fuzz/exported_calls.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/exported/compile.h"
#include "lockstep/exported/run.h"

namespace lockstep::fuzz {
namespace {

using Tensors = std::vector<at::Tensor>;
using Values = std::vector<c10::IValue>;

constexpr int kCalls = 16;

Tensors real_ones() {
  Tensors all;
  const std::vector<std::vector<int64_t>> shapes = {
      {},     {0},       {1},       {4},       {2, 0, 3},    {2, 3},       {4, 4},
      {3, 4}, {2, 3, 4}, {4, 2, 4}, {2, 5, 5}, {1, 2, 5, 5}, {2, 4, 6, 6}, {1, 2, 3, 4, 5}};
  for (const auto& shape : shapes) all.push_back(at::randn(shape));
  all.push_back(at::randn({1, 4}).expand({4, 4}));
  all.push_back(at::randn({4, 3}).t());
  all.push_back(at::randn({8, 8}).slice(0, 1, 8, 2).slice(1, 0, 8, 3));
  all.push_back(at::full({3}, NAN));
  return all;
}

Tensors of_other_dtypes() {
  Tensors all;
  for (const auto dtype : {at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat}) {
    all.push_back(at::randn({4}).to(dtype));
    all.push_back(at::randn({2, 3, 4}).to(dtype));
  }
  all.push_back(at::arange(4));
  all.push_back(at::randint(0, 3, {2, 3}));
  all.push_back(at::randint(-9, 9, {2, 3, 4}));
  all.push_back(at::tensor({int64_t{-5}, int64_t{1000}, std::numeric_limits<int64_t>::min()}));
  all.push_back(at::tensor({int64_t{0}, int64_t{2}, int64_t{5}}));
  all.push_back(at::full({}, 3, at::kLong));
  all.push_back(at::randint(0, 3, {4}, at::kInt));
  all.push_back(at::randint(0, 200, {2, 3}, at::kByte));
  all.push_back(at::randint(-100, 100, {4}, at::kChar));
  all.push_back(at::randn({4}) > 0);
  all.push_back(at::randn({2, 3, 4}) > 0);
  return all;
}

Tensors made_pool() {
  torch::manual_seed(0);
  auto all = real_ones();
  for (auto& other : of_other_dtypes()) all.push_back(std::move(other));
  return all;
}

const Tensors& pool() {
  static const auto all = made_pool();
  return all;
}

std::string name_of(size_t number) {
  return "t" + std::to_string(number);
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (size_t i = 0; i < pool().size(); ++i) all.push_back(name_of(i));
  return all;
}

/// With a gradient where there can be one, and no leaf: what changes it in place may. Of its own for each
/// call.
at::Tensor given(const at::Tensor& tensor) {
  const bool learns = tensor.is_floating_point() || tensor.is_complex();
  const auto own = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
  if (tensor.is_non_overlapping_and_dense()) own.copy_(tensor);
  return learns ? own.requires_grad_().view_as(own) : own;
}

Json as_tensor(const std::string& name) {
  return {{"as_tensor", {{"name", name}}}};
}

/// The graph that calls it alone, and what goes into that.
struct Alone {
  Json graph;
  Values inputs;
};

Alone alone(const Json& node) {
  Alone made{{{"inputs", Json::array()}, {"nodes", {node}}, {"outputs", Json::array()}}, {}};
  const auto text = node.dump();
  for (size_t i = 0; i < pool().size(); ++i) {
    if (text.find('"' + name_of(i) + '"') == std::string::npos) continue;
    made.graph["inputs"].push_back(as_tensor(name_of(i)));
    made.inputs.emplace_back(given(pool()[i]));
  }
  for (const auto& output : node.at("outputs"))
    if (output.contains("as_tensor")) made.graph["outputs"].push_back(output);
  return made;
}

void run_call(const Json& node) {
  exported::GraphCalls calls;
  auto [json, inputs] = alone(node);
  const auto graph = exported::compile(json, {}, calls);
  at::Tensor sum;
  for (const auto& output : exported::run(graph, std::move(inputs), {.device = at::kCPU, .home = at::kCPU})) {
    auto tensor = output.toTensor();
    if (!tensor.requires_grad()) continue;
    if (tensor.is_complex()) tensor = at::view_as_real(tensor.resolve_conj());
    const auto part = tensor.to(at::kFloat).square().sum();
    sum = sum.defined() ? sum + part : part;
  }
  if (sum.defined()) sum.backward();
}

}  // namespace

void run_calls(const std::string& nodes) {
  const auto list = base::parse_json(nodes);
  if (!list.is_array()) throw Error("no list of nodes");
  const auto ended = run_apart([&] {
    int run = 0;
    for (const auto& node : list) {
      try {
        run_call(node);
        ++run;
      } catch (const std::exception&) {  // this one is refused
      }
    }
    if (run == 0) throw Error("none of them runs");
  });
  if (ended != Ended::well) throw Error("none of the calls runs, or they take too long");
}

std::string some_calls(const std::vector<std::string>&, std::mt19937& random) {
  auto list = Json::array();
  for (int i = 0; i < kCalls; ++i) list.push_back(some_call(names(), "made", random));
  return list.dump();
}

void write_calls(const std::filesystem::path& file) {
  const Json input = {{"name", "self"}, {"arg", as_tensor("t0")}};
  const Json node = {
      {"target", "torch.ops.aten.abs.default"}, {"inputs", {input}}, {"outputs", {as_tensor("made_0")}}};
  std::ofstream(file) << Json::array({node}).dump();
}

}  // namespace lockstep::fuzz
