// A resident set's batches against those of the set that it was made of, through a loader of each.
#include "lockstep/data/resident_set.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/data/image_set.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/table_set.h"
#include "peer.h"

namespace lockstep::data {
namespace {

at::Tensor some_bytes(at::IntArrayRef shape) {
  return at::arange(c10::multiply_integers(shape)).mul(7919).remainder(256).to(at::kByte).view(shape);
}

std::shared_ptr<ResidentSet> resident(const Dataset& set) {
  return std::make_shared<ResidentSet>(*set.whole(), at::kCPU);
}

// dtype, shape and bits; both undefined will do
void expect_same(const at::Tensor& a, const at::Tensor& b) {
  ASSERT_EQ(a.defined(), b.defined());
  if (!a.defined()) return;
  EXPECT_EQ(a.options().dtype(), b.options().dtype());
  EXPECT_TRUE(at::equal(a, b));
}

// Three ranks' epochs of two seeds, with a short batch at each end.
template <class Set>
void expect_same_batches(const Set& set) {
  for (const int64_t rank : {0, 1, 2}) {
    DistributedSampler sampler(set.size(), {.rank = rank, .world = 3, .seed = 5 + rank});
    auto plain = loader(std::make_shared<Set>(set), sampler, {.batch_size = 4, .workers = 2});
    auto there = loader(resident(set), sampler, {.batch_size = 4});
    auto other = there.begin();
    for (const auto& batch : plain) {
      ASSERT_NE(other, there.end());
      EXPECT_EQ(batch.indices, other->indices);
      expect_same(batch.input, other->input);
      expect_same(batch.target, other->target);
      ++other;
    }
    EXPECT_EQ(other, there.end());
  }
}

TEST(ResidentSet, GivesTheBatchesOfImages) {
  const auto labels = some_bytes({31});
  expect_same_batches(ImageSet(some_bytes({31, 1, 5, 3}), labels, normalize_table({0.1307}, {0.3081})));
  expect_same_batches(ImageSet(some_bytes({31, 3, 4, 4}), labels,
                               normalize_table({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225})));
}

TEST(ResidentSet, GivesTheBatchesOfATable) {
  const auto rows = at::arange(31 * 5, at::kFloat).sin().view({31, 5});
  expect_same_batches(TableSet(rows, at::arange(31).remainder(2)));
  expect_same_batches(TableSet(rows, at::arange(31, at::kFloat).cos().view({31, 1})));
}

TEST(ResidentSet, GathersByNumbersOnTheDevice) {
  const ImageSet set(some_bytes({6, 2, 2, 2}), some_bytes({6}), normalize_table({0, 0.5}, {1, 2}));
  const auto batch = resident(set)->gather(at::tensor({5, 0, 5}, at::kLong));
  expect_same(batch.input, set.get({5, 0, 5}).input);
  expect_same(batch.target, set.get({5, 0, 5}).target);
}

}  // namespace
}  // namespace lockstep::data

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
