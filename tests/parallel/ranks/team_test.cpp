// The small exchanges of training: sums, texts, errors that all ranks meet alike.
#include "lockstep/parallel/team.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <set>

#include "lockstep/parallel/mesh.h"
#include "lockstep/parallel/session.h"
#include "parallel/ranks_group.h"
#include "ranks.h"
#include "refusal.h"

namespace lockstep {
namespace {

const Team& team() {
  static const Team instance(test::runtime().job(), test::group(), at::kCPU);
  return instance;
}

TEST(Team, SumsAndMaximaAreOverRanks) {
  std::vector<double> values{1, static_cast<double>(team().rank())};
  team().sum(values);
  const int world = team().world();
  EXPECT_EQ(values, (std::vector<double>{1.0 * world, world * (world - 1) / 2.0}));
  std::vector<double> ends{static_cast<double>(team().rank()), -static_cast<double>(team().rank())};
  team().max(ends);
  EXPECT_EQ(ends, (std::vector<double>{world - 1.0, 0}));
}

TEST(Team, TextsOfAnyLengthTravel) {
  const std::string mine(static_cast<size_t>(team().rank()) * 1000, 'x');
  const auto all = team().all_gather(mine);
  ASSERT_EQ(all.size(), static_cast<size_t>(team().world()));
  for (size_t rank = 0; rank < all.size(); ++rank) EXPECT_EQ(all[rank].size(), rank * 1000);
  EXPECT_EQ(team().broadcast(team().first() ? std::string("a\0b", 3) : "mine"), std::string("a\0b", 3));
  EXPECT_EQ(team().broadcast(""), "");
}

TEST(Team, TheFirstRanksErrorIsEverybodys) {
  EXPECT_EQ(test::refusal_of([] {
              team().from_first([]() -> std::string { throw InputError("what", "where", "hint"); });
            }),
            "what / where / hint");
  EXPECT_EQ(team().from_first([] { return std::string("done"); }), "done");
}

TEST(Team, OneRanksErrorIsEverybodys) {
  const int last = team().world() - 1;
  const auto fails = [&] {
    team().together([&] {
      if (team().rank() == last) throw Error("it broke");
    });
  };
  EXPECT_EQ(test::refusal_of<Error>(fails), "it broke /  / ");
  EXPECT_THROW(test::refusal_of(fails), Error) << "it is no InputError";
  EXPECT_NO_THROW(team().together([] {}));
}

TEST(Team, AForeignErrorTravelsToo) {
  EXPECT_THROW(team().from_first([]() -> std::string { throw std::out_of_range("too far"); }), Error);
  EXPECT_THROW(team().together([] {
    if (team().first()) throw InputError("no such file");
  }),
               InputError);
}

TEST(Team, WithoutAGroupEachIsAlone) {
  const Team alone(test::runtime().job(), nullptr, at::kCPU);
  EXPECT_EQ(alone.rank(), 0);
  EXPECT_EQ(alone.world(), 1);
  EXPECT_EQ(alone.broadcast("mine"), "mine");
  EXPECT_EQ(alone.all_gather(std::string("x")), std::vector<std::string>{"x"});
  EXPECT_THROW(alone.from_first([]() -> std::string { throw InputError("what"); }), InputError);
}

// The ranks as a grid: each line of it a group of its own, over either backend.

// A mesh over a backend; splits of one store need names of their own.
class Grid {
 public:
  explicit Grid(const std::string& backend)
      : options_{.backend = backend, .timeout = std::chrono::seconds(30)} {
    const bool shared = backend == "gloo";
    group_ = shared ? test::group() : comm::connect(test::runtime(), options_);
  }

  Mesh mesh(MeshShape shape) {
    const Team all(test::runtime().job(), group_, at::kCPU);
    return {all, shape, [this](int part, const std::string& name) { return split(part, name); }};
  }

 private:
  Team split(int part, const std::string& name) {
    static int count = 0;
    const auto own = name + std::to_string(count++);
    return {test::runtime().job(), comm::split(test::runtime(), options_, at::kCPU, group_, part, own),
            at::kCPU};
  }

  LaunchOptions options_;
  ProcessGroup group_;
};

// The job's ranks in a line of the grid.
std::vector<int> members(const Team& team) {
  std::vector<int> ranks;
  for (const auto& text : team.all_gather(std::to_string(test::rank()))) ranks.push_back(std::stoi(text));
  return ranks;
}

class MeshTest : public ::testing::TestWithParam<std::string> {};

TEST_P(MeshTest, LinesAreGroupsOfTheirOwn) {
  Grid grid(GetParam());
  const int world = test::world(), rank = test::rank();
  for (const auto& [tensor, pipeline] : std::vector<std::pair<int, int>>{{1, 1}, {2, 1}, {1, 2}, {2, 2}}) {
    if (world % (tensor * pipeline) != 0) continue;
    const auto mesh = grid.mesh({.tensor = tensor, .pipeline = pipeline});
    const int data = world / (tensor * pipeline);
    EXPECT_EQ(mesh.shape(), (MeshShape{data, tensor, pipeline}));
    EXPECT_EQ(mesh.data().world(), data);
    EXPECT_EQ(mesh.tensor().world(), tensor);
    EXPECT_EQ(mesh.pipeline().world(), pipeline);
    // a layer's ranks are neighbors, stages are furthest apart
    std::vector<int> neighbours, stages;
    for (int i = 0; i < tensor; ++i) neighbours.push_back(rank / tensor * tensor + i);
    for (int i = 0; i < pipeline; ++i) stages.push_back(rank % (tensor * data) + i * tensor * data);
    EXPECT_EQ(members(mesh.tensor()), neighbours);
    EXPECT_EQ(members(mesh.pipeline()), stages);
    // with the data's line every rank is on exactly one place of the grid
    std::set<std::vector<int>> places;
    for (const auto& text : mesh.all().all_gather(std::to_string(mesh.data().rank()) + " " +
                                                  std::to_string(mesh.tensor().rank()) + " " +
                                                  std::to_string(mesh.pipeline().rank())))
      places.insert({text.begin(), text.end()});
    EXPECT_EQ(places.size(), static_cast<size_t>(world));
    std::vector<double> sum{static_cast<double>(rank)};
    mesh.data().sum(sum);
    double expected = 0;
    for (const int member : members(mesh.data())) expected += member;
    EXPECT_EQ(sum[0], expected);
  }
}

TEST_P(MeshTest, AGridThatDoesNotFitIsAnErrorOfAllRanks) {
  Grid grid(GetParam());
  EXPECT_THROW(grid.mesh({.tensor = test::world() + 1}), InputError);
  EXPECT_THROW(grid.mesh({.data = test::world() + 1}), InputError);
  const auto error = test::error_from([&] { grid.mesh({.data = 3, .tensor = 5}); });
  EXPECT_TRUE(test::has(error.what(),
                        "cannot be divided into parallel.data 3 x parallel.tensor 5 x parallel.pipeline 1"));
}

INSTANTIATE_TEST_SUITE_P(Over, MeshTest, ::testing::Values("gloo", "mpi"),
                         [](const auto& info) { return info.param; });

// The way in, as a user's program takes it: one session in a process, its exchanges, its end.

// All in one test: a process joins its job once.
TEST(Session, OpensOnceAndExchanges) {
  {
    const Session session({.backend = "gloo", .device = "cpu"});
    const int rank = session.rank(), world = session.world();
    EXPECT_EQ(rank, test::runtime().job().rank);
    EXPECT_EQ(world, test::runtime().job().world);
    EXPECT_EQ(session.device(), c10::Device(c10::kCPU));
    EXPECT_GE(session.threads(), 1);
    EXPECT_EQ(session.group()->getSize(), world);

    Mean mean;
    for (int i = 0; i <= rank; ++i) mean.add(at::scalar_tensor(rank));
    double sum = 0, count = 0;
    for (int r = 0; r < world; ++r) sum += r * (r + 1), count += r + 1;
    EXPECT_DOUBLE_EQ(session.all_reduce(mean), sum / count);  // weighed by count
    EXPECT_DOUBLE_EQ(mean.value(), rank);
    EXPECT_TRUE(std::isnan(session.all_reduce(Mean())));
    EXPECT_TRUE(std::isnan(Mean().value()));

    ::testing::internal::CaptureStdout();
    session.print("{} of {}", 7, 9);
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), rank == 0 ? "7 of 9\n" : "");

    EXPECT_STREQ(test::error_from<Error>([] { Session second; }).what(),
                 "this process has a Session already");
  }
  if (test::runtime().job().world == 1) return;
  EXPECT_THROW(Session(), Error) << "its ranks have met and parted";
}

TEST(Mean, LeavesTheLossAlone) {
  const at::Tensor loss = at::scalar_tensor(2.0f).requires_grad_();
  Mean mean;
  mean.add(loss);
  mean.add(5, 2);
  mean.add(at::full({2}, 1.0f));
  EXPECT_DOUBLE_EQ(mean.value(), 14.0 / 5);
  EXPECT_EQ(mean.total(), (std::pair<double, double>(14, 5)));
  EXPECT_FLOAT_EQ(loss.item<float>(), 2);
}

}  // namespace
}  // namespace lockstep
