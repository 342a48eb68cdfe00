#include "lockstep/checkpoint/pt.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/rng.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/zip.h"
#include "refusal.h"
#include "temp.h"

namespace lockstep {
namespace {

using test::TempFolder;

Tree round_trip(const Tree& tree) {
  const TempFolder folder;
  write_pt(folder / "a.pt", tree);
  return read_pt(folder / "a.pt");
}

TEST(Pt, WritesASharedStorageOnce) {
  const auto big = at::zeros({10'000});
  const auto tree = make_dict({{"a", big}, {"b", big}, {"c", big.view({100, 100})}});
  EXPECT_LT(test::pt_bytes(tree).size(), 2 * big.nbytes());
  const auto back = round_trip(tree);
  EXPECT_EQ(get(back, "a").toTensor().data_ptr(), get(back, "c").toTensor().data_ptr());
}

TEST(Pt, RefusesWhatNoCheckpointCanHold) {
  EXPECT_THROW(test::pt_bytes(make_dict({{"device", at::Device(at::kCPU)}})), Error);
  EXPECT_THROW(test::pt_bytes(make_dict({{"undefined", at::Tensor()}})), Error);
}

TEST(Pt, RefusesFoldersAndMissingAndEmptyFiles) {
  const TempFolder folder;
  EXPECT_THROW(read_pt(folder.path()), InputError);
  EXPECT_THROW(read_pt(folder / "none.pt"), InputError);
  EXPECT_THROW(read_pt(folder.write("empty.pt", "")), InputError);
  EXPECT_THROW(read_pt(folder.write("text.pt", "hello, world")), InputError);
}

TEST(Snapshot, SharesNothingAndKeepsSharing) {
  const auto weight = at::ones({3, 4}, at::requires_grad());
  const auto tree =
      make_dict({{"a", weight}, {"tied", weight}, {"slice", at::zeros({1000}).narrow(0, 10, 5)}});
  const auto copy = snapshot(tree);
  {
    const torch::NoGradGuard no_grad;
    weight.zero_();
  }
  const auto a = get(copy, "a").toTensor();
  EXPECT_EQ(a.sum().item<double>(), 12);
  EXPECT_FALSE(a.requires_grad());
  EXPECT_EQ(a.data_ptr(), get(copy, "tied").toTensor().data_ptr());
  EXPECT_EQ(get(copy, "slice").toTensor().storage().nbytes(), 20u);
}

TEST(Snapshot, KeepsStrides) {
  const auto channels_last =
      at::arange(24, at::kFloat).view({1, 2, 3, 4}).contiguous(at::MemoryFormat::ChannelsLast);
  const auto copy = get(snapshot(make_dict({{"t", channels_last}})), "t").toTensor();
  EXPECT_EQ(copy.strides(), channels_last.strides());
  EXPECT_TRUE(at::equal(copy, channels_last));
}

struct Net : torch::nn::Module {
  explicit Net(int64_t width) {
    fc = register_module("fc", torch::nn::Linear(3, width));
    bn = register_module("bn", torch::nn::BatchNorm1d(width));
  }
  torch::nn::Linear fc = nullptr;
  torch::nn::BatchNorm1d bn = nullptr;
};

std::vector<std::string> names(const Tree& tree) {
  std::vector<std::string> all;
  for (const auto& [name, value] : items(tree)) all.push_back(name.toStringRef());
  return all;
}

std::string load_refusal(Net& net, const Tree& state) {
  return test::refusal_of([&] { load_module_state_dict(net, state, "file.pt"); });
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

TEST(StateDict, DropsModulePrefixes) {
  const Net net(2);
  for (const char* prefix : {"module.", "module.module."}) {
    auto state = make_dict();
    for (const auto& [name, value] : items(module_state_dict(net)))
      put(state, prefix + name.toStringRef(), value);
    for (const auto& file :
         {state, make_dict({{"state_dict", state}}), make_dict({{"model_state_dict", state}})})
      EXPECT_EQ(names(find_state_dict(file, "a.pt")), names(module_state_dict(net)));
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

}  // namespace
}  // namespace lockstep

namespace lockstep::checkpoint {
namespace {
namespace fs = std::filesystem;

struct Unzip : testing::Test {
  test::TempFolder folder;
  std::string archive = folder / "a.zip", target = folder / "out";

  /// As Python packs it.
  void pack() {
    LOCKSTEP_PYTHON_OR_SKIP(python, "zipfile");
    std::ofstream(folder / "pack.py") << R"(
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as file:
    file.writestr("set/", "")
    file.writestr("set/long.txt", "a line of text\n" * 200000, zipfile.ZIP_DEFLATED)
    file.writestr("set/plain.txt", "as it is\n", zipfile.ZIP_STORED)
    file.writestr("set/none.txt", "", zipfile.ZIP_DEFLATED)
)";
    test::output_of(python + " " + (folder / "pack.py") + " " + archive);
  }
  void damage(size_t from_begin) {
    auto bytes = base::read_text(archive);
    bytes.at(from_begin) = static_cast<char>(bytes[from_begin] ^ 0x20);
    folder.write("a.zip", bytes);
  }
};

TEST_F(Unzip, BringsBackWhatWasPacked) {
  pack();
  if (IsSkipped()) return;
  unpack(archive, "set/long.txt", target);
  const auto text = base::read_text(target);
  EXPECT_EQ(text.size(), 200000U * 15);
  EXPECT_TRUE(text.ends_with("a line of text\n"));
  EXPECT_TRUE(is_unpacked(archive, "set/long.txt", target));
  unpack(archive, "set/plain.txt", target);
  EXPECT_EQ(base::read_text(target), "as it is\n");
  EXPECT_FALSE(is_unpacked(archive, "set/long.txt", target));
  unpack(archive, "set/none.txt", target);
  EXPECT_EQ(base::read_text(target), "");
}

TEST_F(Unzip, LeavesNothingOfADamagedArchive) {
  pack();
  if (IsSkipped()) return;
  EXPECT_THROW(unpack(archive, "set/other.txt", target), InputError);
  const auto size = fs::file_size(archive);
  damage(size / 3);  // among the packed bytes
  EXPECT_THROW(unpack(archive, "set/long.txt", target), InputError);
  EXPECT_FALSE(fs::exists(target));
  folder.write("a.zip", base::read_text(archive).substr(0, size / 2));
  EXPECT_THROW(unpack(archive, "set/long.txt", target), InputError);
  folder.write("a.zip", "");
  EXPECT_THROW(unpack(archive, "set/long.txt", target), InputError);
  EXPECT_THROW(is_unpacked(archive, "set/long.txt", target), InputError);
  EXPECT_FALSE(fs::exists(target));
}

}  // namespace
}  // namespace lockstep::checkpoint
