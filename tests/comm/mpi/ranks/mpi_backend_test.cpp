#include <thread>

#include "comm/ranks/world.h"

namespace lockstep {
namespace {

using test::own_rank;
using test::world;

TEST(MpiBackend, StridedTensorsKeepTheirMeaning) {
  auto group = test::open("mpi");
  // rank 0 broadcasts rows, the others receive into columns
  at::Tensor rows = at::arange(12.0).view({3, 4});
  at::Tensor columns = at::zeros({4, 3}).t();
  std::vector<at::Tensor> tensors = {own_rank() == 0 ? rows : columns};
  group->broadcast(tensors)->wait();
  EXPECT_TRUE(at::equal(tensors[0], rows));
}

TEST(MpiBackend, CoalescedIsEachOne) {
  auto group = test::open("mpi");
  std::vector<at::Tensor> tensors = {at::full({5}, 1.0), at::full({3}, 2.0)};
  group->allreduce_coalesced(tensors)->wait();
  EXPECT_EQ(tensors[0][4].item<double>(), world());
  EXPECT_EQ(tensors[1][2].item<double>(), 2 * world());
}

TEST(MpiBackend, WrongArgumentsLeaveTheGroupAlive) {
  auto group = test::open("mpi");
  auto backend = group->getBackend(c10::kCPU);
  std::vector<at::Tensor> two = {at::ones({1}), at::ones({1})};
  const auto refused = [](auto&& body, const char* words) {
    EXPECT_NE(test::error_of(body).find(words), std::string::npos) << test::error_of(body);
  };
  refused([&] { backend->allreduce(two); }, "takes one tensor per rank, not 2");
  std::vector<at::Tensor> complex = {at::ones({1}).to(at::kComplexFloat)};
  c10d::AllreduceOptions greatest;
  greatest.reduceOp = c10d::ReduceOp::MAX;
  refused([&] { backend->allreduce(complex, greatest); }, "cannot reduce ComplexFloat");
  at::Tensor odd = at::empty({3 * world()}), part = at::empty({2});
  if (world() > 1)
    refused([&] { backend->_allgather_base(odd, part); }, "the tensors of a collective differ");
  std::vector<at::Tensor> fine = {at::ones({1})};
  group->allreduce(fine)->wait();
  EXPECT_EQ(fine[0].item<float>(), float(world()));
}

TEST(MpiBackend, WorksFromAnotherThread) {
  auto group = test::open("mpi");
  for (int i = 0; i < 20; ++i) {
    std::thread other([&] {
      std::vector<at::Tensor> tensors = {at::ones({100'000})};
      group->allreduce(tensors)->wait();
      EXPECT_EQ(tensors[0][99'999].item<float>(), float(world()));
    });
    other.join();
    group->barrier()->wait();
  }
}

}  // namespace
}  // namespace lockstep
