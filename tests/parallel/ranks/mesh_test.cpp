// The ranks as a grid: each line of it a group of its own, over either backend.
#include "lockstep/parallel/mesh.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <set>

#include "lockstep/base/error.h"
#include "parallel/ranks_group.h"

namespace lockstep {
namespace {

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
    // a layer's ranks are neighbours, stages are furthest apart
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
  try {
    grid.mesh({.data = 3, .tensor = 5});
    FAIL() << "15 ranks are not there";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("cannot be divided into parallel.data 3 x parallel.tensor 5 x parallel.pipeline 1"),
              std::string::npos)
        << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Over, MeshTest, ::testing::Values("gloo", "mpi"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep
