#include "trainer/modes/shared_layers.h"

#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "lockstep/parallel/tensor_collectives.h"
#include "lockstep/parallel/tensor_layers.h"
#include "lockstep/parallel/tensor_tokens.h"

namespace lockstep::train {
namespace {

constexpr int64_t kTokens = 1, kHeads = 1;  // dimensions

class SharedLayers : public Layers {
 public:
  SharedLayers(Team team, bool sequence) : team_(std::move(team)), sequence_(sequence) {}
  bool shared() const override { return true; }

  Layer linear(int64_t in, int64_t out, LinearPlace place) const override {
    if (place.split == Split::none) return Layers::linear(in, out, place);
    if (place.split == Split::outputs)
      return Layer(
          std::make_shared<ColumnParallelLinear>(in, out, team_, columns{.copy_input = !place.entered}));
    return Layer(std::make_shared<RowParallelLinear>(in, out, team_,
                                                     rows{.scatter_tokens = sequence_ && place.tokens}));
  }
  Layer embedding(int64_t count, int64_t width) const override {
    return Layer(std::make_shared<VocabParallelEmbedding>(count, width, team_));
  }
  Layer norm(int64_t width, double eps) const override {
    if (!sequence_) return Layers::norm(width, eps);
    return Layer(std::make_shared<SequenceParallelNorm>(width, team_, eps));
  }

  int64_t own(int64_t count, const std::string& what) const override { return share_of(count, team_, what); }
  at::Tensor enter(const at::Tensor& tokens) const override {
    return sequence_ ? gather_to_group(tokens, team_, kTokens) : copy_to_group(tokens, team_);
  }
  at::Tensor own_tokens(const at::Tensor& tokens) const override {
    return sequence_ ? split_to_group(tokens, team_, kTokens) : tokens;
  }
  at::Tensor all_tokens(const at::Tensor& tokens) const override {
    return sequence_ ? gather_from_group(tokens, team_, kTokens) : tokens;
  }
  at::Tensor dropout(const at::Tensor& x, double p, bool training, Shared shared) const override;

 private:
  using columns = ColumnParallelOptions;
  using rows = RowParallelOptions;

  Team team_;
  bool sequence_;
};

// Every rank draws what is dropped of the whole, and takes its share of that: the ranks' generators stay
// alike, and a mesh of any shape drops what one rank alone would.
at::Tensor SharedLayers::dropout(const at::Tensor& x, double p, bool training, Shared shared) const {
  const bool split = shared == Shared::heads || (shared == Shared::tokens && sequence_);
  if (!split || !training || p == 0) return Layers::dropout(x, p, training, shared);
  auto sizes = x.sizes().vec();
  const int64_t dim = shared == Shared::heads ? kHeads : kTokens;
  const int64_t own = sizes[dim];
  sizes[dim] *= team_.world();
  const auto kept = at::empty(sizes, x.options()).bernoulli_(1 - p).div_(1 - p);
  return x * kept.narrow(dim, team_.rank() * own, own);
}

}  // namespace

std::shared_ptr<const Layers> layers_for(const Mesh& mesh, const ParallelSettings& settings) {
  if (mesh.tensor().world() == 1) return std::make_shared<Layers>();
  return std::make_shared<SharedLayers>(mesh.tensor(), settings.sequence);
}

}  // namespace lockstep::train
