// Models that torch.export.save wrote: tests/fixtures/exported has one of each torch since 2.7, of which
// those before 2.9 are refused.
#include "lockstep/models/exported.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <filesystem>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "temp_folder.h"

namespace lockstep {
namespace {

using Values = std::vector<c10::IValue>;

constexpr const char* kFixtures = "tests/fixtures/exported";
constexpr const char* kNewest = "tests/fixtures/exported/torch-2.15.0.pt2";

// The file of an old torch, and what is said of it.
const std::map<std::string, std::string> kOld = {
    {"torch-2.7.1.pt2", "the file is from a torch before 2.9, which wrote another layout"},
    {"torch-2.8.0.pt2", "the graph has schema version 8.8 (torch 2.8.0+cu128); lockstep reads 8.14 to 8.x"},
};

std::set<std::string> fixtures() {
  std::set<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(kFixtures))
    if (entry.path().extension() == ".pt2" && !kOld.contains(entry.path().filename()))
      paths.insert(entry.path());
  return paths;
}

// A batch, and which branch of the model's torch.cond it takes: the second where there are many words.
Values batch(int64_t size, int64_t words) {
  torch::manual_seed(static_cast<uint64_t>(size));
  return {torch::randn({size, 1, 4, 5}), torch::ones({size, words}, torch::kLong)};
}

at::Tensor loss_of(const Values& outputs) {
  return outputs.at(0).toTensor().square().sum() + outputs.at(1).toTensor().square().mean();
}

// What two steps with both branches leave behind.
std::map<std::string, at::Tensor> trained(ExportedNet& net) {
  std::map<std::string, at::Tensor> found;
  net.train();
  for (const int64_t size : {3, 1}) {
    net.zero_grad();
    const auto inputs = batch(size, size == 1 ? 2 : 7);
    const auto outputs = net.run(inputs);
    loss_of(outputs).backward();
    const torch::NoGradGuard no_grad;
    for (auto& item : net.named_parameters()) {
      found["grad." + item.key()] = item.value().grad().clone();
      item.value().sub_(item.value().grad(), 0.1);
    }
    for (const auto& output : outputs) found[std::to_string(found.size())] = output.toTensor().detach();
  }
  for (const auto& item : net.named_buffers()) found[item.key()] = item.value();
  return found;
}

TEST(ExportedNet, FilesOfEachTorchTrainToTheSameBits) {
  const auto paths = fixtures();
  EXPECT_GE(paths.size(), 7U);
  const auto wanted = trained(*load_exported(kNewest));
  for (const auto& path : paths) {
    const auto got = trained(*load_exported(path));
    ASSERT_EQ(got.size(), wanted.size()) << path;
    for (const auto& [name, tensor] : wanted)
      EXPECT_TRUE(at::equal(tensor, got.at(name))) << path << " " << name;
  }
}

TEST(ExportedNet, FilesBeforeTorch29AreRefusedWithTheLineThatExportsAgain) {
  for (const auto& [name, words] : kOld) {
    const auto path = (std::filesystem::path(kFixtures) / name).string();
    try {
      load_exported(path);
      ADD_FAILURE() << name << " was taken";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
      EXPECT_EQ(error.where(), path);
      EXPECT_TRUE(error.hint().starts_with("with ")) << error.hint();
      EXPECT_NE(error.hint().find("torch.export.save("), std::string::npos) << error.hint();
    }
  }
}

TEST(ExportedNet, HasTheStateDictOfPython) {
  const auto net = load_exported(kNewest);
  std::set<std::string> names;
  for (const auto& [name, tensor] : items(module_state_dict(*net))) names.insert(name.toStringRef());
  const std::set<std::string> wanted = {"conv.weight",
                                        "conv.bias",
                                        "norm.weight",
                                        "norm.bias",
                                        "norm.running_mean",
                                        "norm.running_var",
                                        "norm.num_batches_tracked",
                                        "first.weight",
                                        "first.bias",
                                        "second.weight",
                                        "second.bias",
                                        "tied.weight",
                                        "tied.bias",
                                        "seen"};
  EXPECT_EQ(names, wanted);
  EXPECT_EQ(net->parameters().size(), 9U) << "the tied weight is one parameter";
  EXPECT_EQ(net->buffers().size(), 5U) << "scale is a buffer, though nobody saves it";
}

TEST(ExportedNet, EachBranchGetsGradientsAndTheOtherZeros) {
  const auto net = load_exported(kNewest);
  loss_of(net->run(batch(3, 7))).backward();  // takes the first
  const auto parameters = net->named_parameters();
  EXPECT_NE(parameters["second.bias"].grad().abs().sum().item<float>(), 0);
  ASSERT_TRUE(parameters["tied.bias"].grad().defined());
  EXPECT_EQ(parameters["tied.bias"].grad().abs().sum().item<float>(), 0);
}

TEST(ExportedNet, EvaluatesWithoutDropoutAndKeepsTheNormsStatistics) {
  const auto net = load_exported(kNewest);
  net->run(batch(3, 7));
  const auto mean = net->named_buffers()["norm.running_mean"].clone();
  const auto counted = net->named_buffers()["norm.num_batches_tracked"].item<int64_t>();
  net->eval();
  const auto once = net->run(batch(3, 7)), again = net->run(batch(3, 7));
  EXPECT_TRUE(at::equal(once[0].toTensor(), again[0].toTensor()));
  EXPECT_TRUE(at::equal(mean, net->named_buffers()["norm.running_mean"]));
  EXPECT_EQ(net->named_buffers()["norm.num_batches_tracked"].item<int64_t>(), counted);
  net->train();
  EXPECT_FALSE(at::equal(once[0].toTensor(), net->run(batch(3, 7))[0].toTensor()));
}

TEST(ExportedNet, SavesAndLoadsItself) {
  const test::TempFolder folder;
  const auto net = load_exported(kNewest);
  trained(*net);
  save_exported(*net, kNewest, folder / "trained.pt2");
  const auto again = load_exported(folder / "trained.pt2");
  const auto wanted = module_state_dict(*net), got = module_state_dict(*again);
  for (const auto& [name, tensor] : items(wanted))
    EXPECT_TRUE(at::equal(tensor.toTensor(), get(got, name.toStringRef()).toTensor())) << name.toStringRef();
}

struct WrongInputs {
  const char* name;
  const char* words;
  Values (*inputs)();
};

std::ostream& operator<<(std::ostream& out, const WrongInputs& wrong) {
  return out << wrong.name;
}

const WrongInputs kWrong[] = {
    {"TooFew", "takes 2 inputs, but got 1",
     [] {
       return Values{torch::zeros({3, 1, 4, 5})};
     }},
    {"NoTensor", "the input x is a Int",
     [] {
       return Values{1, torch::ones({3, 7}, torch::kLong)};
     }},
    {"OtherDtype", "the input words is Float, and the model was exported for Long",
     [] {
       return Values{torch::zeros({3, 1, 4, 5}), torch::ones({3, 7})};
     }},
    {"OtherDimensions", "the input x has 3 dimensions, but the model was exported for 4",
     [] {
       return Values{torch::zeros({3, 4, 5}), torch::ones({3, 7}, torch::kLong)};
     }},
    {"OtherSize", "the input x has size 6 in dimension 3, but the model was exported only for 5",
     [] {
       return Values{torch::zeros({3, 1, 4, 6}), torch::ones({3, 7}, torch::kLong)};
     }},
};

struct ExportedInputs : testing::TestWithParam<WrongInputs> {};

TEST_P(ExportedInputs, ThatDoNotFitAreNamed) {
  const auto net = load_exported(kNewest);
  try {
    net->run(GetParam().inputs());
    ADD_FAILURE() << "taken";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().words), std::string::npos) << error.what();
    EXPECT_EQ(error.where(), kNewest);
  }
}

INSTANTIATE_TEST_SUITE_P(Each, ExportedInputs, testing::ValuesIn(kWrong),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep
