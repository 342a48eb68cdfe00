#include "lockstep/checkpoint/pt.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "temp.h"

namespace lockstep {
namespace {

using test::TempFolder;

Tree round_trip(const Tree& tree) {
  const TempFolder folder;
  write_pt(folder / "a.pt", tree);
  return read_pt(folder / "a.pt");
}

at::Tensor round_trip(const at::Tensor& tensor) {
  return get(round_trip(make_dict({{"t", tensor}})), "t").toTensor();
}

TEST(Pt, KeepsEveryDtype) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
                           at::kChar, at::kByte, at::kBool, at::kComplexFloat}) {
    const auto tensor = at::arange(6, at::kFloat).view({2, 3}).to(dtype);
    const auto back = round_trip(tensor);
    EXPECT_EQ(back.scalar_type(), dtype);
    EXPECT_TRUE(at::equal(back, tensor)) << dtype;
  }
}

// tests/e2e/test_checkpoint.py compares more values with Python.
TEST(Pt, KeepsPlainValues) {
  const auto tree = make_dict({{"least", std::numeric_limits<int64_t>::min()},
                               {"most", std::numeric_limits<int64_t>::max()},
                               {int64_t{7}, make_list({int64_t{1}, 2.5, "three"})},
                               {"tuple", c10::ivalue::Tuple::create({0.9, 0.999})},
                               {"empty dict", make_dict()},
                               {"empty list", make_list()},
                               {"typed", c10::List<int64_t>({1, 2, 3})}});
  const auto back = round_trip(tree);
  EXPECT_EQ(get(back, "least").toInt(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(get(back, "most").toInt(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(elements(*find(back, int64_t{7}))[2].toStringRef(), "three");
  EXPECT_EQ(elements(get(back, "tuple"))[1].toDouble(), 0.999);
  EXPECT_EQ(elements(get(back, "typed"))[2].toInt(), 3);
  EXPECT_TRUE(items(get(back, "empty dict")).empty());
  EXPECT_EQ(items(back).front().first.toStringRef(), "least") << "entries keep their order";
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

}  // namespace
}  // namespace lockstep
