#include "tools/bench/work.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "lockstep/models/pima_net.h"
#include "lockstep/models/simple_cnn.h"
#include "trainer/modes/model.h"

namespace lockstep::bench {
namespace {

TEST(Work, OfSimpleCnnIsThatOfItsLayers) {
  SimpleCNN net;
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const auto input = at::rand({4, 1, 28, 28}).contiguous(format);
    const auto work = count_work([&] { net.forward(input).sum().backward(); });
    const double conv1 = 2.0 * 4 * 28 * 28 * 32 * 9, conv2 = 2.0 * 4 * 14 * 14 * 64 * 32 * 9;
    const double fc1 = 2.0 * 4 * 3136 * 128, fc2 = 2.0 * 4 * 128 * 10;
    EXPECT_EQ(work.forward, conv1 + conv2 + fc1 + fc2);
    EXPECT_EQ(work.backward, conv1 + 2 * (conv2 + fc1 + fc2));
  }
}

TEST(Work, OfFewerBitsIsTheSame) {
  PimaNet pima;
  SimpleCNN cnn;
  const auto of = [](Net& net, const at::Tensor& input) {
    return count_work([&] {
      const train::Autocast autocast(at::kCPU, Precision::bf16);
      net.forward(input);
    });
  };
  const auto patients = at::rand({32, 8}), digits = at::rand({4, 1, 28, 28});
  EXPECT_EQ(of(pima, patients).forward, count_work([&] { pima.forward(patients); }).forward);
  EXPECT_EQ(of(cnn, digits).forward, count_work([&] { cnn.forward(digits); }).forward);
}

struct Convolution {
  const char* name;
  std::vector<int64_t> input, weight;
  int64_t stride, padding, dilation, groups;
  double multiplications;  // forward
};

TEST(Work, OfAConvolutionFollowsItsStridesAndGroups) {
  const std::vector<Convolution> all = {
      {"one dimension", {2, 3, 20}, {5, 3, 4}, 1, 0, 1, 1, 2 * 17 * 5 * 3 * 4},
      {"stride 2", {2, 3, 9, 7}, {5, 3, 3, 3}, 2, 0, 1, 1, 2 * 4 * 3 * 5 * 27},
      {"padding", {2, 3, 9, 7}, {5, 3, 3, 3}, 1, 1, 1, 1, 2 * 9 * 7 * 5 * 27},
      {"dilation", {2, 3, 9, 7}, {5, 3, 3, 3}, 1, 0, 2, 1, 2 * 5 * 3 * 5 * 27},
      {"groups", {2, 6, 9, 7}, {4, 3, 3, 3}, 1, 0, 1, 2, 2 * 7 * 5 * 4 * 27},
      {"three dimensions", {2, 3, 5, 6, 7}, {4, 3, 2, 2, 2}, 1, 0, 1, 1, 2 * 4 * 5 * 6 * 4 * 24}};
  for (const auto& one : all) {
    const auto input = at::rand(one.input).requires_grad_(), weight = at::rand(one.weight).requires_grad_();
    const auto each = [&](int64_t number) { return std::vector<int64_t>(one.input.size() - 2, number); };
    const auto work = count_work([&] {
      at::convolution(input, weight, {}, each(one.stride), each(one.padding), each(one.dilation), false,
                      each(0), one.groups)
          .sum()
          .backward();
    });
    EXPECT_EQ(work.forward, 2 * one.multiplications) << one.name;
    EXPECT_EQ(work.backward, 2 * work.forward) << one.name;
  }
}

TEST(Work, OfATransposedConvolutionIsThatOfItsInput) {
  const auto input = at::rand({2, 6, 5, 4}).requires_grad_(),
             weight = at::rand({6, 3, 3, 3}).requires_grad_();
  const auto work = count_work([&] { at::conv_transpose2d(input, weight, {}, 2).sum().backward(); });
  EXPECT_EQ(work.forward, 2.0 * 2 * 6 * 5 * 4 * 27);
  EXPECT_EQ(work.backward, 2 * work.forward);
}

TEST(Work, OfAProductIsCountedOnceUnderEachOfItsNames) {
  const auto a = at::rand({3, 4, 5}), b = at::rand({3, 5, 6}), weight = at::rand({7, 5});
  const auto count = [](const auto& product) { return count_work(product).forward; };
  EXPECT_EQ(count([&] { at::matmul(a, b); }), 2.0 * 3 * 4 * 5 * 6);
  EXPECT_EQ(count([&] { at::einsum("bij,bjk->bik", {a, b}); }), 2.0 * 3 * 4 * 5 * 6);
  EXPECT_EQ(count([&] { at::linear(a, weight); }), 2.0 * 3 * 4 * 5 * 7);
  EXPECT_EQ(count([&] { at::linear(a, weight, at::rand(7)); }), 2.0 * 3 * 4 * 5 * 7);
  EXPECT_EQ(count([&] { at::mv(weight, at::rand(5)); }), 2.0 * 7 * 5);
  EXPECT_EQ(count([&] { at::add(a, a); }), 0);
}

TEST(Work, OfAttentionIsThatOfItsProducts) {
  const auto of = [](int64_t length) { return at::rand({2, 3, length, 8}).requires_grad_(); };
  const auto query = of(5), key = of(7), value = of(7);
  const auto work = count_work([&] { at::scaled_dot_product_attention(query, key, value).sum().backward(); });
  const double product = 2.0 * 2 * 3 * 5 * 7 * 8;
  EXPECT_EQ(work.forward, 2 * product);
  EXPECT_EQ(work.backward, 5 * product);
}

TEST(Work, IsCountedOnEveryThreadAndNoLonger) {
  const auto a = at::rand({4, 4});
  const auto work = count_work([&] {
    std::thread([&] { at::mm(a, a); }).join();
    at::mm(a, a);
  });
  at::mm(a, a);
  EXPECT_EQ(work.forward, 2 * 2.0 * 64);
  EXPECT_EQ(count_work([] {}).forward, 0);
}

}  // namespace
}  // namespace lockstep::bench
