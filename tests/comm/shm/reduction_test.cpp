#include "lockstep/comm/shm/reduction.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

using Op = c10d::ReduceOp;

std::vector<at::Tensor> random(int ranks, int64_t items, at::ScalarType type) {
  std::vector<at::Tensor> tensors;
  for (int rank = 0; rank < ranks; ++rank) tensors.push_back(at::randn({items}).mul(20).to(type));
  return tensors;
}

at::Tensor combined(const std::vector<at::Tensor>& tensors, Op::RedOpType op) {
  const Reduction reduction = find_reduction(tensors[0].scalar_type(), op);
  std::vector<const std::byte*> sources;
  for (const auto& tensor : tensors) sources.push_back(static_cast<const std::byte*>(tensor.data_ptr()));
  at::Tensor out = at::empty_like(tensors[0]);
  reduction.combine(sources.data(), sources.size(), static_cast<std::byte*>(out.data_ptr()),
                    static_cast<size_t>(out.numel()));
  return out;
}

TEST(Reduction, SumsInRankOrder) {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong}) {
    for (const int64_t items : {1, 511, 512, 513, 5000}) {
      const auto tensors = random(4, items, type);
      const auto expected = ((tensors[0] + tensors[1]) + tensors[2]) + tensors[3];
      EXPECT_TRUE(at::equal(combined(tensors, Op::SUM), expected)) << type << " " << items;
    }
  }
}

TEST(Reduction, WritesToSeveralPlacesOfWhichSourcesMayBeSome) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kInt})
    for (const int ranks : {2, 3, 4})
      for (const size_t outs : {1, 2, 4})
        for (const int64_t items : {1, 15, 513, 5000}) {
          const auto tensors = random(ranks, items, type);
          const auto expected = combined(tensors, Op::SUM);
          std::vector<at::Tensor> places;
          for (size_t i = 0; i < outs; ++i)
            places.push_back(i < tensors.size() ? tensors[i] : at::empty_like(expected));
          std::vector<const std::byte*> from;
          std::vector<std::byte*> to;
          for (const auto& tensor : tensors) from.push_back(static_cast<const std::byte*>(tensor.data_ptr()));
          for (const auto& tensor : places) to.push_back(static_cast<std::byte*>(tensor.data_ptr()));
          find_reduction(type, Op::SUM)
              .combine_into(from.data(), from.size(), to.data(), to.size(), static_cast<size_t>(items));
          for (const auto& place : places)
            EXPECT_TRUE(at::equal(place, expected)) << type << " " << ranks << " " << outs << " " << items;
        }
}

}  // namespace
}  // namespace lockstep::comm
