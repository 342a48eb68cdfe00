#include "lockstep/kernels/flattened.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <limits>
#include <vector>

#include "kernels/levels.h"
#include "lockstep/base/format.h"

namespace lockstep::kernels {
namespace {

using at::MemoryFormat;

class InAutocast {
 public:
  InAutocast() { at::autocast::set_autocast_enabled(at::kCPU, true); }
  ~InAutocast() { at::autocast::set_autocast_enabled(at::kCPU, false); }
};

at::Tensor images(at::IntArrayRef sizes) {
  return at::randn(sizes).contiguous(MemoryFormat::ChannelsLast);
}

TEST(Flattened, HasLibtorchsBitsAtEachLevel) {
  at::manual_seed(1);
  for (const auto& [n, channels, height, width] : std::vector<std::array<int64_t, 4>>{{1, 1, 1, 1},
                                                                                      {3, 2, 1, 3},
                                                                                      {2, 64, 7, 7},
                                                                                      {1, 7, 5, 5},
                                                                                      {2, 17, 3, 11},
                                                                                      {1, 40, 2, 9},
                                                                                      {5, 16, 4, 4}})
    for (const auto level : levels()) {
      SCOPED_TRACE(
          format("{} x {} x {} x {}, level {}", n, channels, height, width, static_cast<int>(level)));
      auto x = images({n, channels, height, width});
      x.select(1, channels / 2).select(1, height / 2).select(1, width / 2) =
          std::numeric_limits<float>::quiet_NaN();
      x.select(1, 0).select(1, 0).select(1, 0) = 1.00390625F;  // between two: to the even one
      auto rows = at::empty({n, channels * height * width}, at::kBFloat16);
      flatten_images(x.const_data_ptr<float>(), n, height * width, channels,
                     static_cast<uint16_t*>(rows.data_ptr()), level);
      const auto wanted = x.flatten(1).to(at::kBFloat16);
      EXPECT_TRUE(rows.allclose(wanted, 0, 0, /*equal_nan=*/true));
    }
}

TEST(Flattened, GivesALinearLayerAndItsInputWhatAutocastGives) {
  at::manual_seed(2);
  const auto x = images({4, 32, 3, 5}).requires_grad_(), weight = at::randn({8, 480}),
             gradient = at::randn({4, 8}, at::kBFloat16);
  const auto of = [&](bool own) {
    const auto output = [&] {
      const InAutocast here;
      return at::linear(own ? flattened(x) : x.flatten(1), weight);
    }();
    return std::pair{output, torch::autograd::grad({output}, {x}, {gradient})[0]};
  };
  const auto [output, back] = of(true);
  const auto [wanted, wanted_back] = of(false);
  EXPECT_TRUE(output.equal(wanted));
  EXPECT_TRUE(back.equal(wanted_back));
  EXPECT_EQ(back.scalar_type(), at::kFloat);
}

TEST(Flattened, LeavesWhatItDoesNotKnowToTorch) {
  at::manual_seed(4);
  const auto x = images({2, 8, 3, 3});
  EXPECT_TRUE(flattened(x).equal(x.flatten(1))) << "no autocast";
  const InAutocast here;
  EXPECT_EQ(flattened(x).scalar_type(), at::kBFloat16);
  for (const auto& other : {x.contiguous(), x.to(at::kDouble), x.to(at::kBFloat16), x.narrow(0, 0, 0),
                            x.select(0, 0), x.permute({0, 2, 1, 3})}) {
    const auto rows = flattened(other);
    EXPECT_EQ(rows.scalar_type(), other.scalar_type());
    EXPECT_TRUE(rows.equal(other.flatten(1)));
  }
}

}  // namespace
}  // namespace lockstep::kernels
