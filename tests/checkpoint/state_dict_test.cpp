#include "lockstep/checkpoint/state_dict.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/rng.h"
#include "temp.h"

namespace lockstep {
namespace {

struct Net : torch::nn::Module {
  explicit Net(int64_t width) {
    fc = register_module("fc", torch::nn::Linear(3, width));
    bn = register_module("bn", torch::nn::BatchNorm1d(width));
  }
  torch::nn::Linear fc = nullptr;
  torch::nn::BatchNorm1d bn = nullptr;
};

using test::TempFolder;

std::vector<std::string> names(const Tree& tree) {
  std::vector<std::string> all;
  for (const auto& [name, value] : items(tree)) all.push_back(name.toStringRef());
  return all;
}

std::string load_refusal(Net& net, const Tree& state) {
  try {
    load_module_state_dict(net, state, "file.pt");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(StateDict, HasPythonsNamesInPythonsOrder) {
  const Net net(2);
  const std::vector<std::string> python = {"fc.weight",
                                           "fc.bias",
                                           "bn.weight",
                                           "bn.bias",
                                           "bn.running_mean",
                                           "bn.running_var",
                                           "bn.num_batches_tracked"};
  EXPECT_EQ(names(module_state_dict(net)), python);
}

TEST(StateDict, LoadsWhatItSaved) {
  Net from(2), to(2);
  from.bn->running_mean.fill_(3);
  const TempFolder folder;
  write_pt(folder / "a.pt", make_dict({{"model", module_state_dict(from)}}));
  load_module_state_dict(to, find_state_dict(read_pt(folder / "a.pt"), "a.pt"), "a.pt");
  EXPECT_TRUE(at::equal(from.fc->weight, to.fc->weight));
  EXPECT_TRUE(at::equal(from.bn->running_mean, to.bn->running_mean));
}

TEST(StateDict, DropsModulePrefixes) {
  const Net net(2);
  for (const char* prefix : {"module.", "module.module."}) {
    auto state = make_dict();
    for (const auto& [name, value] : items(module_state_dict(net)))
      put(state, prefix + name.toStringRef(), value);
    for (const auto& file :
         {state, make_dict({{"state_dict", state}}), make_dict({{"model_state_dict", state}})}) {
      EXPECT_EQ(names(find_state_dict(file, "a.pt")), names(module_state_dict(net)));
    }
  }
  EXPECT_THROW(find_state_dict(make_dict({{"loss", 0.5}}), "a.pt"), InputError);
  EXPECT_THROW(find_state_dict(at::zeros({2}), "a.pt"), InputError);
}

TEST(StateDict, NamesWhatDoesNotFitAndChangesNothing) {
  Net net(2);
  const auto before = net.fc->weight.clone();
  const auto wider = load_refusal(net, module_state_dict(Net(4)));
  EXPECT_NE(wider.find("fc.weight: shape [4, 3] in the file, [2, 3] in the model"), std::string::npos)
      << wider;
  EXPECT_NE(wider.find("and 1 more"), std::string::npos) << wider;
  auto other = make_dict({{"fc.weight", at::zeros({2, 3})}, {"extra", at::zeros({1})}});
  const auto missing = load_refusal(net, other);
  EXPECT_NE(missing.find("fc.bias: missing in the file"), std::string::npos) << missing;
  auto half = module_state_dict(Net(2));
  put(half, "fc.bias", at::zeros({2}, at::kHalf));
  EXPECT_NE(load_refusal(net, half).find("fc.bias: Half in the file, Float in the model"), std::string::npos);
  auto more = module_state_dict(Net(2));
  put(more, "extra", at::zeros({1}));
  EXPECT_NE(load_refusal(net, more).find("extra: not in the model"), std::string::npos);
  EXPECT_TRUE(at::equal(net.fc->weight, before));
}

TEST(Rng, TheStateBringsTheNumbersBack) {
  torch::manual_seed(5);
  torch::randn({3});
  const auto state = rng_state();
  EXPECT_EQ(state.numel(), 5056);
  const auto numbers = torch::randn({20});
  set_rng_state(state);
  EXPECT_TRUE(at::equal(torch::randn({20}), numbers));
  EXPECT_THROW(set_rng_state(at::zeros({12}, at::kByte)), InputError);
}

}  // namespace
}  // namespace lockstep
