#include "lockstep/tasks/metrics.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <numeric>
#include <tuple>

namespace lockstep::tasks {
namespace {

const std::vector<std::string> kClasses = {"a", "b", "c"};

double loss_of(const at::Tensor& output, const at::Tensor& target, const at::Tensor& weights) {
  return at::cross_entropy_loss(output, target, weights, at::Reduction::Sum).item<double>();
}

// Batches of 4 that reach from one part into the next count as each part alone.
TEST(PartMetrics, CountsEachPartAlone) {
  const auto output = at::randn({13, 3}, at::detail::createCPUGenerator(1));
  const auto target = at::randint(0, 3, {13}, at::detail::createCPUGenerator(2), at::kLong);
  for (const auto& weights : {at::Tensor(), at::tensor({0.5, 1.0, 2.0}, at::kFloat)}) {
    PartMetrics both({{"matched", 6}, {"mismatched", 7}}, kClasses, weights);
    std::vector<int64_t> indices(13);
    std::iota(indices.begin(), indices.end(), 0);
    for (int64_t begin = 0; begin < 13; begin += 4) {
      const int64_t end = std::min<int64_t>(begin + 4, 13);
      const auto out = output.slice(0, begin, end), truth = target.slice(0, begin, end);
      const double weight = weights.defined() ? weights.index_select(0, truth).sum().item<double>()
                                              : static_cast<double>(end - begin);
      both.add(out, truth, at::ArrayRef<int64_t>(indices).slice(begin, end - begin),
               {loss_of(out, truth, weights), weight});
    }
    std::vector<std::pair<std::string, double>> wanted;
    for (const auto& [name, begin, end] :
         {std::tuple{std::string(), 0, 6}, std::tuple{std::string("mismatched_"), 6, 13}}) {
      const auto out = output.slice(0, begin, end), truth = target.slice(0, begin, end);
      const double weight = weights.defined() ? weights.index_select(0, truth).sum().item<double>()
                                              : static_cast<double>(end - begin);
      wanted.emplace_back(name + "loss", loss_of(out, truth, weights) / weight);
      wanted.emplace_back(name + "accuracy", (out.argmax(1) == truth).to(at::kDouble).mean().item<double>());
    }
    const auto values = both.values();
    ASSERT_EQ(values.size(), wanted.size());
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values[i].first, wanted[i].first);
      EXPECT_NEAR(values[i].second, wanted[i].second, 1e-6) << values[i].first;
    }
    EXPECT_NE(both.report().find("matched\nloss"), std::string::npos);
  }
}

// Two ranks' sums add up to one's.
TEST(PartMetrics, AddsUpOverRanks) {
  const auto output = at::randn({4, 2}, at::detail::createCPUGenerator(1));
  const auto target = at::tensor({0, 1, 1, 0}, at::kLong);
  const Parts parts = {{"one", 2}, {"two", 2}};
  const auto sums_of = [&](std::vector<int64_t> rows) {
    PartMetrics metrics(parts, {"a", "b"}, {});
    const auto picked = at::tensor(rows, at::kLong);
    const auto out = output.index_select(0, picked), truth = target.index_select(0, picked);
    metrics.add(out, truth, rows, {loss_of(out, truth, {}), static_cast<double>(rows.size())});
    std::vector<at::Tensor> sums;
    for (const auto& sum : metrics.sums()) sums.push_back(sum.clone());
    return sums;
  };
  const auto all = sums_of({0, 1, 2, 3}), first = sums_of({0, 1, 2}), second = sums_of({3});
  ASSERT_EQ(all.size(), first.size());
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_TRUE(
        at::allclose(first[i].to(at::kDouble) + second[i].to(at::kDouble), all[i].to(at::kDouble), 1e-6))
        << i;
}

}  // namespace
}  // namespace lockstep::tasks
