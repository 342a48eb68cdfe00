// parallel.tensor: the ranks of a tensor group share the layers of one model.
#include "trainer/modes/model.h"

#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <map>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/parallel/tensor_layers.h"

namespace lockstep::train {
namespace {

using Change = std::function<at::Tensor(const at::Tensor& tensor, int64_t dim)>;

// What a parameter's state holds for each of its numbers is split as the parameter is; one number, such as
// Adam's step, is for all of it.
Tree changed_state(const Tree& state, int64_t dim, at::IntArrayRef shape, const Change& change) {
  auto dict = make_dict();
  for (const auto& [key, value] : items(state)) {
    const bool single = !value.isTensor() || value.toTensor().dim() == 0;
    if (!single && value.toTensor().sizes() != shape)
      throw InputError(
          format("the optimizer's {} does not have its parameter's shape", as_string(key, "state")),
          "parallel.tensor, optim.name", "use another optimizer, or set parallel.tensor to 1");
    put(dict, key, single ? value : Tree(change(value.toTensor(), dim)));
  }
  return dict;
}

class TensorParts : public ModelParts {
 public:
  TensorParts(const Net& net, const std::vector<at::Tensor>& parameters, const Team& team)
      : team_(team), parameters_(parameters), dim_of_(parameters.size()) {
    for (const auto& module : net.named_modules("", /*include_self=*/false)) {
      const auto* layer = dynamic_cast<const SplitLayer*>(module.value().get());
      if (!layer) continue;
      for (const auto& item : module.value()->named_parameters(/*recurse=*/false)) {
        const int64_t dim = layer->split_of(item.key());
        if (dim < 0) continue;
        dims_.emplace(module.key() + "." + item.key(), dim);
        for (size_t i = 0; i < parameters.size(); ++i)
          if (parameters[i].is_same(item.value())) dim_of_[i] = dim;
      }
    }
    if (!dims_.empty()) return;
    throw InputError("the model has no layers that split among ranks", "parallel.tensor",
                     "build it from the layers of ModelRequest, or set parallel.tensor to 1");
  }

  const Team& team() const override { return team_; }
  Tree whole_state_dict(const Tree& own) const override {
    return changed(own, [this](const auto& tensor, int64_t dim) { return whole(tensor, dim); });
  }
  Tree own_state_dict(const Tree& own_state, const Tree& whole, const std::string& file) const override {
    const auto outline = changed(own_state, [this](const auto& tensor, int64_t dim) {
      return at::empty(whole_shape(tensor, dim), tensor.options().device(at::kMeta));
    });
    check_state_dict(outline, whole, file);
    return changed(whole, [this](const auto& tensor, int64_t dim) { return own(tensor, dim); });
  }

  Tree whole_optimizer(const Tree& own_state) const override {
    return changed_optimizer(
        own_state, [](const auto& parameter, int64_t) { return parameter.sizes().vec(); },
        [this](const auto& tensor, int64_t dim) { return whole(tensor, dim); });
  }

  Tree own_optimizer(const Tree& whole_state) const override {
    return changed_optimizer(
        whole_state, [this](const auto& parameter, int64_t dim) { return whole_shape(parameter, dim); },
        [this](const auto& tensor, int64_t dim) { return own(tensor, dim).clone(); });
  }

  // What is split counts with all its parts, and what each rank has whole counts once: as one model's would.
  at::Tensor whole_norms(const std::vector<at::Tensor>& own_norms) const override {
    std::vector<at::Tensor> norms;
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < own_norms.size(); ++i) {
      if (!own_norms[i].defined()) continue;
      if (dim_of_[i]) numbers.push_back(static_cast<int64_t>(norms.size()));
      norms.push_back(own_norms[i]);
    }
    if (norms.empty()) return torch::zeros({0});
    const auto all = torch::stack(norms);
    const auto places = torch::tensor(numbers, torch::kLong).to(all.device());
    std::vector<at::Tensor> squares{all.index_select(0, places).to(torch::kFloat64).square()};
    team_.sum(squares);
    return all.index_copy(0, places, squares[0].sqrt().to(all.scalar_type()));
  }

 private:
  using ShapeOf = std::function<std::vector<int64_t>(const at::Tensor& parameter, int64_t dim)>;

  at::Tensor whole(const at::Tensor& own, int64_t dim) const {
    return at::cat(team_.all_gather(own.detach()), dim);  // on the CPU
  }
  at::Tensor own(const at::Tensor& whole, int64_t dim) const {
    const int64_t size = whole.size(dim) / team_.world();
    return whole.narrow(dim, team_.rank() * size, size);
  }
  std::vector<int64_t> whole_shape(const at::Tensor& own, int64_t dim) const {
    auto shape = own.sizes().vec();
    shape[static_cast<size_t>(dim)] *= team_.world();
    return shape;
  }
  Tree changed(const Tree& state, const Change& change) const {
    auto dict = make_dict();
    for (const auto& [name, value] : items(state)) {
      const auto dim = dims_.find(as_string(name, "a tensor's name"));
      put(dict, name, dim == dims_.end() ? value : Tree(change(value.toTensor(), dim->second)));
    }
    return dict;
  }

  Tree changed_optimizer(const Tree& optimizer, const ShapeOf& shape_of, const Change& change) const {
    auto states = make_dict();
    for (const auto& [index, state] : items(get(optimizer, "state"))) {
      const auto number = static_cast<size_t>(as_int(index, "state"));
      const auto dim = number < parameters_.size() ? dim_of_[number] : std::nullopt;
      put(states, index,
          dim && state.isGenericDict()
              ? changed_state(state, *dim, shape_of(parameters_[number], *dim), change)
              : state);
    }
    auto dict = make_dict();
    for (const auto& [key, value] : items(optimizer))
      put(dict, key, as_string(key, "optimizer") == "state" ? states : value);
    return dict;
  }

  Team team_;
  std::vector<at::Tensor> parameters_;
  std::map<std::string, int64_t> dims_;         // along which a parameter is split, by its name
  std::vector<std::optional<int64_t>> dim_of_;  // the same, of parameters_
};

}  // namespace

std::unique_ptr<ModelParts> make_tensor_parts(const Net& net, const std::vector<at::Tensor>& parameters,
                                              const Team& team) {
  return std::make_unique<TensorParts>(net, parameters, team);
}

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
  // Every rank draws what is dropped of the whole, and takes its share of that: the ranks' generators stay
  // alike, and a mesh of any shape drops what one rank alone would.
  at::Tensor dropout(const at::Tensor& x, double p, bool training, Shared shared) const override {
    const bool split = shared == Shared::heads || (shared == Shared::tokens && sequence_);
    if (!split || !training || p == 0) return Layers::dropout(x, p, training, shared);
    auto sizes = x.sizes().vec();
    const int64_t dim = shared == Shared::heads ? kHeads : kTokens, own = sizes[dim];
    sizes[dim] *= team_.world();
    const auto kept = at::empty(sizes, x.options()).bernoulli_(1 - p).div_(1 - p);
    return x * kept.narrow(dim, team_.rank() * own, own);
  }

 private:
  using columns = ColumnParallelOptions;
  using rows = RowParallelOptions;

  Team team_;
  bool sequence_;
};

}  // namespace

std::shared_ptr<const Layers> layers_for(const Mesh& mesh, const ParallelSettings& settings) {
  if (mesh.tensor().world() == 1) return std::make_shared<Layers>();
  return std::make_shared<SharedLayers>(mesh.tensor(), settings.sequence);
}

}  // namespace lockstep::train
