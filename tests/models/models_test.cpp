#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/models/bert_layer.h"
#include "lockstep/models/mlp.h"
#include "lockstep/models/pima_net.h"
#include "lockstep/models/simple_cnn.h"
#include "models/bits.h"
#include "peer.h"

namespace lockstep {
namespace {

using test::bits;

template <class M, class... Args>
std::string seeded(at::IntArrayRef shape, Args... args) {
  torch::manual_seed(7);
  M model(args...);
  std::string text;
  for (const auto& parameter : model.parameters()) text += bits(parameter);
  return text + bits(model.forward(torch::randn(shape)));
}

TEST(Models, HavePythonsParametersAndOutputsBitForBit) {
  LOCKSTEP_PYTHON_OR_SKIP(python, "torch");
  torch::set_num_threads(1);
  const auto peer = test::output_of(python + " tests/models/models_peer.py bits 2>/dev/null");
  const auto ours = seeded<SimpleCNN>({5, 1, 28, 28}) + seeded<PimaNet>({5, 8}) +
                    seeded<Mlp>({5, 2, 3}, 6, std::vector<int64_t>{5, 4}, 3) +
                    seeded<BertLayerNet>({5, 1, 6, 5}, std::vector<int64_t>{1, 6, 5}, 3,
                                         BertShape{.width = 8, .heads = 2, .intermediate = 16});
  ASSERT_EQ(peer.size(), ours.size());
  EXPECT_TRUE(peer == ours);
}

TEST(BertLayerNet, IsNamedLikeHuggingFacesBert) {
  BertLayerNet net({1, 6, 5}, 3, {.width = 8, .heads = 2, .intermediate = 16});
  std::string text;
  for (const auto& item : net.named_parameters()) {
    if (item.key().ends_with("weight")) text += item.key() + " ";
  }
  EXPECT_EQ(text,
            "embed.weight position.weight layer.attention.self.query.weight layer.attention.self.key.weight "
            "layer.attention.self.value.weight layer.attention.output.dense.weight "
            "layer.attention.output.LayerNorm.weight layer.intermediate.dense.weight "
            "layer.output.dense.weight layer.output.LayerNorm.weight classifier.weight ");
}

}  // namespace
}  // namespace lockstep
