#include "tools/bench/ways.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/shared_backend.h"
#include "tools/bench/measure.h"

namespace lockstep::bench {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int64_t kSmall = 64 << 10;
constexpr int kCallsOfSmall = 8;

// Small whole numbers, others in each round: their sums are exact, and the last round's are wrong.
at::Tensor numbers(int64_t items, int round, int rank) {
  return at::arange(items, at::kFloat).add_(13 * rank + round).remainder_(64);
}

at::Tensor sum_of_numbers(int64_t items, int round, int world) {
  auto sum = at::zeros({items});
  for (int rank = 0; rank < world; ++rank) sum.add_(numbers(items, round, rank));
  return sum;
}

int64_t items_of(int64_t bytes) {
  return bytes / static_cast<int64_t>(sizeof(float));
}

// The tensors lie in the same memory in every round, as gradients do in training. Ways that need the same
// kind of memory share it.
struct Place {
  const Way* of;
  Tensors tensors;
};

Place make_place(const Way& way, int64_t bytes) {
  Place place{.of = &way, .tensors = {}};
  for (int call = 0; call < (bytes <= kSmall ? kCallsOfSmall : 1); ++call)
    place.tensors.push_back(at::zeros({items_of(bytes)}, at::kFloat).to(way.device));
  comm::share(way.shares, place.tensors);
  return place;
}

Tensors& place_for(const Way& way, int64_t bytes, std::vector<Place>& places) {
  for (auto& place : places) {
    if (place.of->device == way.device && place.of->shares == way.shares) return place.tensors;
  }
  return places.emplace_back(make_place(way, bytes)).tensors;
}

double time_of(const Way& way, Tensors& tensors, const std::function<void()>& line_up) {
  line_up();
  const auto begin = Clock::now();
  for (auto& tensor : tensors) way.sum(tensor);
  return since(begin) / static_cast<double>(tensors.size());
}

void check_sums(const Way& way, const Tensors& tensors, const at::Tensor& want) {
  for (const auto& tensor : tensors) {
    if (at::equal(tensor.cpu(), want)) continue;
    throw Error(format("{} summed {} floats wrongly", way.name, want.numel()), "bench allreduce",
                "a bug of lockstep or of the library under it: please report it");
  }
}

}  // namespace

Way through(const std::string& name, const ProcessGroup& group, at::Device device) {
  const auto sum = [group](at::Tensor& tensor) {
    Tensors tensors = {tensor};
    group->allreduce(tensors)->wait();
    if (tensor.is_cuda()) tensor.view({-1})[0].item<float>();  // there it ends with the stream
  };
  return {.name = name, .sum = sum, .device = device};
}

Way in_shared_memory(const std::string& name, const ProcessGroup& group) {
  Way way = through(name, group);
  way.shares = group;
  return way;
}

std::vector<double> measured(const Team& team, const std::vector<Way>& ways, int64_t bytes, int rounds,
                             const std::function<void()>& line_up) {
  std::vector<Place> places;
  std::vector<double> times;
  for (int round = 0; round <= rounds; ++round) {  // the first one warms up
    const auto own = numbers(items_of(bytes), round, team.rank());
    const auto want = sum_of_numbers(items_of(bytes), round, team.world());
    for (const auto& way : ways) {
      auto& tensors = place_for(way, bytes, places);
      for (auto& tensor : tensors) tensor.copy_(own);
      const double seconds = time_of(way, tensors, line_up);
      team.together([&] { check_sums(way, tensors, want); });
      if (round > 0) times.push_back(seconds);
    }
  }
  team.max(times);
  std::vector<double> medians;
  for (size_t way = 0; way < ways.size(); ++way) {
    std::vector<double> own;
    for (size_t at = way; at < times.size(); at += ways.size()) own.push_back(times[at]);
    medians.push_back(spread_of(std::move(own)).median);
  }
  return medians;
}

}  // namespace lockstep::bench
