#include "lockstep/data/image_set.h"

#include <ATen/ATen.h>

#include <cstring>

#include "lockstep/base/error.h"
#include "peer.h"

namespace lockstep {
namespace {

std::string bits(const at::Tensor& t) {
  return {static_cast<const char*>(t.const_data_ptr()), t.nbytes()};
}

TEST(ImageSet, NormalizesToTorchvisionsBits) {
  LOCKSTEP_PYTHON_OR_SKIP(python, "torchvision");
  const auto peer = test::output_of(python + " tests/data/image_set_peer.py");
  const auto grey = at::arange(256, at::kByte).view({1, 1, 16, 16});
  const ImageSet one(grey, {}, normalize_table({0.1307}, {0.3081}));
  const ImageSet three(grey.repeat({1, 3, 1, 1}), {},
                       normalize_table({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}));
  const auto ours = bits(one.get({0}).input) + bits(three.get({0}).input);
  ASSERT_EQ(peer.size(), ours.size());
  EXPECT_TRUE(peer == ours);
}

TEST(ImageSet, StacksTheSamplesAskedFor) {
  const auto images = at::arange(2 * 3 * 4, at::kByte).view({3, 2, 2, 2});
  const auto labels = at::tensor({5, 0, 255}, at::kByte);
  const ImageSet set(images, labels, normalize_table({0, 0}, {1, 1}));
  const auto batch = set.get({2, 0, 2});
  EXPECT_TRUE(at::equal(batch.input, images.index_select(0, at::tensor({2, 0, 2})).to(at::kFloat).div(255)));
  EXPECT_TRUE(at::equal(batch.target, at::tensor({255, 5, 255}, at::kLong)));
  EXPECT_FALSE(ImageSet(images, {}, normalize_table({0, 0}, {1, 1})).get({1}).target.defined());
}

TEST(ImageSet, RefusesANormalizationForOtherChannels) {
  EXPECT_THROW(ImageSet(at::zeros({1, 1, 2, 2}, at::kByte), {}, normalize_table({0, 0}, {1, 1})), InputError);
}

}  // namespace
}  // namespace lockstep
