#include "lockstep/data/sampler.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep {
namespace {

void check_rank(int64_t rank, int64_t world) {
  if (world >= 1 && rank >= 0 && rank < world) return;
  throw Error(format("rank {} is not in a world of {}", rank, world), "SamplerOptions",
              "ranks go from 0 to world - 1");
}

void check_bucket(const SamplerOptions& options, int64_t size) {
  if (options.bucket == 0) return;
  if (options.bucket > 0 && options.lengths && static_cast<int64_t>(options.lengths->size()) == size) return;
  throw Error(format("cannot sort samples by length with {} lengths and a bucket of {}",
                     options.lengths ? options.lengths->size() : 0, options.bucket),
              "SamplerOptions", format("give a length for each of the {} samples", size));
}

// Before the list is split, so that the order does not depend on the number of ranks.
void order_by_length(std::vector<int64_t>& list, const SamplerOptions& options) {
  const auto& lengths = *options.lengths;
  bool longest_first = true;
  for (size_t begin = 0; begin < list.size(); longest_first = !longest_first) {
    const size_t end = std::min(begin + static_cast<size_t>(options.bucket), list.size());
    std::stable_sort(list.begin() + static_cast<ptrdiff_t>(begin), list.begin() + static_cast<ptrdiff_t>(end),
                     [&](int64_t a, int64_t b) {
                       return longest_first ? lengths[a] > lengths[b] : lengths[a] < lengths[b];
                     });
    begin = end;
  }
}

/// The samples of an epoch, for all ranks together.
std::vector<int64_t> epoch_list(int64_t size, const SamplerOptions& options, int64_t epoch) {
  std::vector<int64_t> list(static_cast<size_t>(size));
  std::iota(list.begin(), list.end(), 0);
  if (options.shuffle) {
    const auto seed = static_cast<uint64_t>(options.seed + epoch);
    const auto drawn = at::randperm(size, at::detail::createCPUGenerator(seed));
    std::copy_n(drawn.const_data_ptr<int64_t>(), size, list.begin());
  }
  if (options.bucket > 0) order_by_length(list, options);
  return list;
}

}  // namespace

SampleOrder::SampleOrder(std::vector<int64_t> indices)
    : count_(static_cast<int64_t>(indices.size())),
      indices_(std::make_shared<const std::vector<int64_t>>(std::move(indices))) {}

std::vector<int64_t> Sampler::indices() const {
  const auto taken = order();
  std::vector<int64_t> list(taken.size());
  for (int64_t i = 0; i < taken.size(); ++i) list[i] = taken[i];
  return list;
}

DistributedSampler::DistributedSampler(int64_t size, SamplerOptions options)
    : size_(size), options_(options) {
  check_rank(options.rank, options.world);
  check_bucket(options_, size);
  if (size < 0)
    throw Error("the size of a data set cannot be negative", "DistributedSampler",
                "pass the data set's size()");
}

void DistributedSampler::resume(EpochPosition position) {
  if (position.consumed < 0)
    throw Error("a position inside an epoch cannot be negative", "DistributedSampler::resume",
                "pass a position from position_after(), or use another checkpoint");
  position_ = position;
}

EpochPosition DistributedSampler::position_after(int64_t samples) const {
  return {position_.epoch, position_.consumed + samples * options_.world};
}

// Ranks take turns along the epoch's list, so at any world size they have taken a prefix of it. The rest is
// split as Python splits a whole epoch, where consumed = 0.
int64_t DistributedSampler::num_samples() const {
  const int64_t rest = std::max<int64_t>(size_ - position_.consumed, 0);
  return (options_.drop_last ? rest : rest + options_.world - 1) / options_.world;
}

SampleOrder DistributedSampler::order() const {
  SampleOrder places(position_.consumed + options_.rank, options_.world, num_samples(),
                     std::max<int64_t>(size_, 1));
  if (!options_.shuffle && options_.bucket == 0) return places;
  const auto list = epoch_list(size_, options_, position_.epoch);
  std::vector<int64_t> mine(places.size());
  for (int64_t i = 0; i < places.size(); ++i) mine[i] = list[places[i]];
  return SampleOrder(std::move(mine));
}

ShardSampler::ShardSampler(int64_t size, int64_t rank, int64_t world) : size_(size) {
  check_rank(rank, world);
  begin_ = size / world * rank + std::min(rank, size % world);
  end_ = begin_ + size / world + (rank < size % world ? 1 : 0);
}

SampleOrder ShardSampler::order() const {
  return SampleOrder(begin_, 1, num_samples(), std::max<int64_t>(size_, 1));
}

}  // namespace lockstep
