// Models that torch.export.save wrote: tests/fixtures/exported has one of each torch since 2.7, of which
// those before 2.9 are refused.
#include "lockstep/models/exported.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <filesystem>
#include <map>
#include <set>

#include "lockstep/base/files/file.h"
#include "lockstep/models/torchscript.h"
#include "peer.h"
#include "refusal.h"
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

// What two steps with both branches leave behind.
std::map<std::string, at::Tensor> trained(ExportedNet& net) {
  std::map<std::string, at::Tensor> found;
  net.train();
  for (const int64_t size : {3, 1}) {
    net.zero_grad();
    const auto inputs = batch(size, size == 1 ? 2 : 7);
    const auto outputs = net.run(inputs);
    (outputs.at(0).toTensor().square().sum() + outputs.at(1).toTensor().square().mean()).backward();
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
    const auto error = test::error_from([&] { load_exported(path); });
    EXPECT_TRUE(test::has(error.what(), words));
    EXPECT_EQ(error.where(), path);
    EXPECT_TRUE(test::has(error.hint(), "torch.export.save("));
  }
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

TEST(ExportedNet, InputsThatDoNotFitAreNamed) {
  const auto net = load_exported(kNewest);
  const auto image = torch::zeros({3, 1, 4, 5}), words = torch::ones({3, 7}, torch::kLong);
  const std::pair<const char*, Values> wrong[] = {
      {"takes 2 inputs, but got 1", {image}},
      {"the input x is a Int", {1, words}},
      {"the input words is Float, but the model was exported for Long", {image, torch::ones({3, 7})}},
      {"the input x has 3 dimensions, but the model was exported for 4", {image.squeeze(1), words}},
      {"the input x has size 6 in dimension 3, but the model was exported only for 5",
       {torch::zeros({3, 1, 4, 6}), words}}};
  for (const auto& [said, inputs] : wrong) {
    const auto error = test::error_from([&] { net->run(inputs); });
    EXPECT_TRUE(test::has(error.what(), said));
    EXPECT_EQ(error.where(), kNewest);
  }
}

struct TorchScript : testing::Test {
  void SetUp() override {
    LOCKSTEP_PYTHON_OR_SKIP(python, "torch");
    test::output_of(python + " -W ignore tests/models/models_peer.py script " + folder.path().string());
  }
  void refused(const std::string& path, const std::string& words) {
    const std::string what = test::error_from([&] { TorchScriptNet net(path); }).what();
    EXPECT_TRUE(test::has(what, words));
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  }
  test::TempFolder folder;
};

TEST_F(TorchScript, TrainsUnderPythonsNames) {
  TorchScriptNet net(folder / "model.pt");
  std::string names;
  for (const auto& item : net.named_parameters()) names += item.key() + " ";
  for (const auto& item : net.named_buffers()) names += item.key() + " ";
  EXPECT_EQ(names,
            "body.0.weight body.0.bias body.1.weight body.1.bias head.weight head.bias "
            "body.1.running_mean body.1.running_var body.1.num_batches_tracked ");
  const auto x = torch::randn({16, 4});
  const auto before = net.forward(x);
  before.square().sum().backward();
  for (auto& parameter : net.parameters()) {
    ASSERT_TRUE(parameter.grad().defined());
    torch::NoGradGuard guard;
    parameter -= 0.1 * parameter.grad();  // in place: the script must see it
  }
  net.eval();
  const auto moved = net.forward(x);
  EXPECT_TRUE(torch::equal(moved, net.forward(x))) << "dropout is still on";
  EXPECT_EQ(net.named_buffers()["body.1.num_batches_tracked"].item<int64_t>(), 1);
  TorchScriptNet again(folder / "model.pt");
  again.eval();
  EXPECT_FALSE(torch::allclose(again.forward(x), moved));
}

TEST_F(TorchScript, RefusesWhatCannotBeTrained) {
  refused("", "model.path is empty");
  refused(folder / "missing.pt", "No such file");
  refused(folder.path(), "a folder, not a regular file");
  refused(folder / "weights.pt", "not a TorchScript module");
  refused(folder.write("text.pt", "hello"), "not a TorchScript module");
  refused(folder / "frozen.pt", "no parameters");
  const auto content = base::read_text(folder / "model.pt");
  refused(folder.write("half.pt", content.substr(0, content.size() / 2)), "not a TorchScript module");
  TorchScriptNet pair(folder / "pair.pt");
  EXPECT_THROW(pair.forward(torch::randn({2, 4})), InputError);
}

}  // namespace
}  // namespace lockstep
