#include "lockstep/tasks/metrics.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <numeric>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/data/sampler.h"
#include "peer.h"

namespace lockstep {
namespace {

double value(const Metrics& metrics, const std::string& name) {
  for (const auto& [key, number] : metrics.values())
    if (key == name) return number;
  ADD_FAILURE() << "no " << name;
  return 0;
}

// Scores with many ties, on a grid, so that halves count.
struct Scored {
  at::Tensor output, target;
  explicit Scored(int64_t samples, int64_t classes) {
    at::manual_seed(11);
    output = at::randint(-4, 5, {samples, classes}).to(at::kFloat) / 2;
    target = at::randint(0, classes, {samples}, at::kLong);
  }
};

void feed(Metrics& metrics, const Scored& scored, const std::vector<int64_t>& samples) {
  for (size_t at = 0; at < samples.size(); at += 7) {
    const std::vector<int64_t> some(samples.begin() + at, samples.begin() + std::min(at + 7, samples.size()));
    const auto rows = at::tensor(some, at::kLong);
    metrics.add(scored.output.index_select(0, rows), scored.target.index_select(0, rows), some,
                {static_cast<double>(some.size()) * 0.5, static_cast<double>(some.size())});
  }
}

TEST(ClassMetrics, HasF1AndAucByTheirDefinitions) {
  LOCKSTEP_PYTHON_OR_SKIP(python, "sys");
  const Scored scored(400, 2);
  ClassMetrics metrics({"no", "yes"}, 400);
  feed(metrics, scored, ShardSampler(400, 0, 1).indices());
  test::TempFolder folder;
  std::string lines;
  for (int64_t i = 0; i < 400; ++i)
    lines += std::to_string(scored.target[i].item<int64_t>()) + " " +
             std::to_string((scored.output[i][1] - scored.output[i][0]).item<float>()) + "\n";
  const auto path = folder.write("scores", lines);
  std::istringstream peer(test::output_of(python + " tests/tasks/metrics_peer.py < " + path));
  double f1 = 0, auc = 0;
  peer >> f1 >> auc;
  EXPECT_GT(f1, 0.3);
  EXPECT_DOUBLE_EQ(value(metrics, "f1"), f1);
  EXPECT_DOUBLE_EQ(value(metrics, "auc"), auc);
}

TEST(ClassMetrics, AddUpOverRanksToTheSameNumbers) {
  for (int64_t classes : {2, 5}) {
    const Scored scored(103, classes);
    const std::vector<std::string> names(classes, "c");
    ClassMetrics alone(names, 103);
    feed(alone, scored, ShardSampler(103, 0, 1).indices());
    for (int64_t world : {2, 3, 7, 200}) {
      ClassMetrics total(names, 103);
      for (int64_t rank = 0; rank < world; ++rank) {
        ClassMetrics part(names, 103);
        feed(part, scored, ShardSampler(103, rank, world).indices());
        auto into = total.sums();
        const auto from = part.sums();
        for (size_t i = 0; i < into.size(); ++i) into[i] += from[i];
      }
      EXPECT_EQ(total.values(), alone.values()) << world;
      EXPECT_TRUE(at::equal(total.confusion(), alone.confusion()));
      EXPECT_EQ(total.samples(), 103);
    }
  }
}

TEST(ClassMetrics, CountsWhatIsRight) {
  ClassMetrics metrics({"a", "b", "c"}, 4);
  metrics.add(at::tensor({1.f, 0.f, 0.f, 0.f, 1.f, 0.f, 0.f, 1.f, 0.f, 0.f, 0.f, 1.f}).view({4, 3}),
              at::tensor({0, 1, 2, 2}, at::kLong), {0, 1, 2, 3}, {2.0, 4.0});
  EXPECT_EQ(metrics.correct(), 3);
  EXPECT_DOUBLE_EQ(value(metrics, "loss"), 0.5);
  EXPECT_DOUBLE_EQ(value(metrics, "accuracy"), 0.75);
  EXPECT_EQ(metrics.confusion()[2][1].item<int64_t>(), 1);
  EXPECT_NE(metrics.report().find("3 of 4"), std::string::npos);
}

TEST(ClassMetrics, EndWhenTheModelGivesNaN) {
  ClassMetrics metrics({"a", "b"}, 2);
  metrics.add(at::full({2, 2}, std::nan("")), at::tensor({0, 1}, at::kLong), {0, 1}, {1.0, 2.0});
  EXPECT_EQ(value(metrics, "auc"), 0.5);
}

TEST(NumberMetrics, AreTheMeansOverAllSamples) {
  NumberMetrics metrics({}, 3);
  metrics.add(at::tensor({1.0f, 2.0f}).view({2, 1}), at::tensor({0.0f, 4.0f}).view({2, 1}), {0, 1}, {5, 2});
  metrics.add(at::tensor({1.0f}).view({1, 1}), at::tensor({-2.0f}).view({1, 1}), {2}, {9, 1});
  EXPECT_DOUBLE_EQ(value(metrics, "loss"), 14.0 / 3);
  EXPECT_DOUBLE_EQ(value(metrics, "mse"), 14.0 / 3);
  EXPECT_DOUBLE_EQ(value(metrics, "mae"), 2);
  EXPECT_DOUBLE_EQ(value(metrics, "r2"), 1 - 14 / (20 - 4.0 / 3)) << "labels 0, 4, -2";
  EXPECT_TRUE(metrics.points().equal(at::tensor({0., 1., 4., 2., -2., 1.}).view({3, 2})));
  NumberMetrics many({}, 1001);
  const auto numbers = at::arange(1001, at::kFloat).view({-1, 1});
  std::vector<int64_t> indices(1001);
  std::iota(indices.begin(), indices.end(), 0);
  many.add(numbers, numbers, indices, {0, 1});
  EXPECT_TRUE(many.points().select(1, 0).equal(at::arange(0, 1001, 3, at::kDouble)));
  EXPECT_THROW(metrics.add(at::zeros({2}), at::zeros({2, 1}), {0, 1}, {1, 2}), InputError)
      << "would broadcast";
  EXPECT_THROW(metrics.add(at::zeros({2, 3}), at::zeros({2, 1}), {0, 1}, {1, 2}), InputError);
}

double loss_of(const at::Tensor& output, const at::Tensor& target, const at::Tensor& weights) {
  return at::cross_entropy_loss(output, target, weights, at::Reduction::Sum).item<double>();
}

// Batches of 4 that reach from one part into the next count as each part alone.
TEST(PartMetrics, CountsEachPartAlone) {
  const auto output = at::randn({13, 3}, at::detail::createCPUGenerator(1));
  const auto target = at::randint(0, 3, {13}, at::detail::createCPUGenerator(2), at::kLong);
  for (const auto& weights : {at::Tensor(), at::tensor({0.5, 1.0, 2.0}, at::kFloat)}) {
    PartMetrics both({{"matched", 6}, {"mismatched", 7}}, {"a", "b", "c"}, weights);
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

}  // namespace
}  // namespace lockstep
