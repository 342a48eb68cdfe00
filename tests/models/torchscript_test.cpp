#include "lockstep/models/torchscript.h"

#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "peer.h"

namespace lockstep {
namespace {

struct TorchScript : testing::Test {
  void SetUp() override {
    LOCKSTEP_PYTHON_OR_SKIP(python, "torch");
    test::output_of(python + " -W ignore tests/models/models_peer.py script " + folder.path().string());
  }
  void refused(const std::string& path, const std::string& words) {
    try {
      TorchScriptNet net(path);
      ADD_FAILURE() << "taken: " << path;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
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
  refused(folder.path(), "a folder, not a file");
  refused(folder / "weights.pt", "not a TorchScript module");
  refused(folder.write("text.pt", "hello"), "not a TorchScript module");
  refused(folder / "frozen.pt", "no parameters");
  std::ifstream whole(folder / "model.pt", std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(whole), {}};
  refused(folder.write("half.pt", content.substr(0, content.size() / 2)), "not a TorchScript module");
  TorchScriptNet pair(folder / "pair.pt");
  EXPECT_THROW(pair.forward(torch::randn({2, 4})), InputError);
}

}  // namespace
}  // namespace lockstep
