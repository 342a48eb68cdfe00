#include "lockstep/parallel/tensors.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/rnn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/parallel/module_tensors.h"

namespace lockstep {
namespace {

at::Tensor number(double value) {
  return torch::full({}, value);
}

// The values met on the walk; each tensor is replaced by its negative.
template <class T>
std::vector<double> walked(T& value) {
  std::vector<double> met;
  for_each_tensor(value, [&met](at::Tensor& tensor) {
    met.push_back(tensor.item<double>());
    tensor = -tensor;
  });
  return met;
}

using Numbers = std::vector<double>;

TEST(ForEachTensor, StandardContainers) {
  auto nested =
      std::make_tuple(number(1), std::make_pair(2, number(2)), std::vector<at::Tensor>{number(3), number(4)},
                      std::optional<at::Tensor>{number(5)}, std::optional<at::Tensor>{},
                      std::map<std::string, at::Tensor>{{"b", number(7)}, {"a", number(6)}},
                      std::array<at::Tensor, 1>{number(8)}, std::variant<int, at::Tensor>{number(9)});
  EXPECT_EQ(walked(nested), (Numbers{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(walked(nested).front(), -1);
}

struct Inner {
  at::Tensor a;
  std::shared_ptr<at::Tensor> b;
};
struct Outer {
  std::string text;
  Inner inner;
  std::vector<Inner> many;
  double weight = 1;
};

TEST(ForEachTensor, PlainStructs) {
  Outer outer{"x", {number(1), std::make_shared<at::Tensor>(number(2))}, {{number(3), nullptr}}, 2};
  EXPECT_EQ(walked(outer), (Numbers{1, 2, 3}));
  EXPECT_EQ(walked(outer), (Numbers{-1, -2, -3}));
}

TEST(ForEachTensor, PackedSequences) {
  auto packed = torch::nn::utils::rnn::pack_sequence({torch::ones({3}), torch::ones({2})});
  for_each_tensor(packed, [](at::Tensor& tensor) { tensor = -tensor; });
  EXPECT_TRUE(packed.data().equal(-torch::ones({5})));
  EXPECT_TRUE(packed.batch_sizes().equal(torch::tensor({2, 2, 1}))) << "stays on the CPU";
  DeviceArg<decltype(packed)&> placed(packed, c10::Device(c10::kMeta));
  EXPECT_TRUE(placed.get().data().is_meta());
  EXPECT_TRUE(placed.get().batch_sizes().is_cpu());
}

TEST(ForEachTensor, TorchScriptValues) {
  c10::impl::GenericDict dict(c10::AnyType::get(), c10::AnyType::get());
  dict.insert("k", number(3));
  c10::IValue value = c10::ivalue::Tuple::create({number(1), c10::List<at::Tensor>({number(2)}),
                                                  c10::IValue(dict), c10::IValue(4), c10::IValue("text")});
  EXPECT_EQ(walked(value), (Numbers{1, 2, 3}));
  EXPECT_EQ(walked(value), (Numbers{-1, -2, -3}));
}

bool on_meta(const at::Tensor& tensor) {
  return tensor.is_meta();
}

// A device that every machine has and that is not the CPU.
template <class Arg>
std::decay_t<Arg> placed(Arg&& argument, std::optional<c10::Device> device = c10::Device(at::kMeta)) {
  return DeviceArg<Arg>(std::forward<Arg>(argument), device).get();
}

TEST(DeviceArg, NestedTensorsMoveAndTheCallersStay) {
  std::map<std::string, std::vector<at::Tensor>> batch = {{"x", {number(1), number(2)}}};
  EXPECT_TRUE(on_meta(placed(batch)["x"][1]));
  EXPECT_FALSE(on_meta(batch["x"][1])) << "the caller's own are not touched";
  EXPECT_TRUE(on_meta(std::get<1>(placed(std::make_tuple(3, number(1))))));
  EXPECT_TRUE(on_meta(*placed(std::optional<at::Tensor>(number(1)))));
  EXPECT_TRUE(on_meta(std::get<at::Tensor>(placed(std::variant<int, at::Tensor>(number(1))))));
  EXPECT_TRUE(on_meta(placed(std::vector<std::pair<int, at::Tensor>>{{1, number(1)}})[0].second));
  EXPECT_TRUE(on_meta(placed(number(1))));
  EXPECT_FALSE(placed(at::Tensor()).defined());
}

TEST(DeviceArg, StructsMoveButForWhatLiesBehindAPointer) {
  Outer outer{"x", {number(1), std::make_shared<at::Tensor>(number(2))}, {{number(3), nullptr}}, 2};
  const Outer moved = placed(outer);
  EXPECT_TRUE(on_meta(moved.inner.a) && on_meta(moved.many[0].a));
  EXPECT_FALSE(on_meta(*moved.inner.b) || on_meta(outer.inner.a));
}

TEST(DeviceArg, WithoutADeviceOrTensorsTheArgumentItselfPasses) {
  std::vector<at::Tensor> tensors = {number(1)};
  EXPECT_EQ(&DeviceArg<std::vector<at::Tensor>&>(tensors, std::nullopt).get(), &tensors);
  struct Opaque {
    std::function<int()> call = [] { return 1; };
    Opaque() = default;
    Opaque(const Opaque&) = delete;
  } opaque;
  EXPECT_EQ(&DeviceArg<Opaque&>(opaque, c10::Device(at::kMeta)).get(), &opaque);
  std::vector<std::unique_ptr<int>> movable(1);
  EXPECT_EQ(
      DeviceArg<std::vector<std::unique_ptr<int>>>(std::move(movable), c10::Device(at::kMeta)).get().size(),
      1);
}

TEST(ModuleTensors, ReducerOrderIsTheModulesOrder) {
  torch::nn::Sequential net(torch::nn::Linear(2, 2),
                            torch::nn::Embedding(torch::nn::EmbeddingOptions(3, 2).sparse(true)),
                            torch::nn::BatchNorm1d(2));
  (*net)[0]->as<torch::nn::LinearImpl>()->bias.set_requires_grad(false);
  parallel::Names names;
  std::vector<bool> sparse;
  for (const auto& parameter : parallel::reduced_parameters(*net, {"2.bias"})) {
    names.push_back(parameter.name);
    sparse.push_back(parameter.sparse_gradient);
  }
  EXPECT_EQ(names, (parallel::Names{"0.weight", "1.weight", "2.weight"}));
  EXPECT_EQ(sparse, (std::vector<bool>{false, true, false}));
  EXPECT_EQ(parallel::unique_parameters(*net).size(), 5U);
  EXPECT_EQ(parallel::unique_buffers(*net, {"2.num_batches_tracked"}).size(), 2U);
}

}  // namespace
}  // namespace lockstep
