#include "trainer/modes/tensor_model.h"

#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/optim/clip.h"
#include "lockstep/parallel/tensor_layers.h"

namespace lockstep::train {
namespace {

template <class Key>
std::optional<int64_t> found(const std::map<Key, int64_t>& dims, const Key& key) {
  const auto it = dims.find(key);
  return it == dims.end() ? std::nullopt : std::optional<int64_t>(it->second);
}

using Change = std::function<at::Tensor(const at::Tensor& tensor, int64_t dim)>;

Tree changed(const SplitParameters& split, const Tree& state, const Change& change) {
  auto dict = make_dict();
  for (const auto& [name, value] : items(state)) {
    const auto dim = split.dim_of(as_string(name, "a tensor's name"));
    put(dict, name, dim ? Tree(change(value.toTensor(), *dim)) : value);
  }
  return dict;
}

// What a parameter's state holds for each of its numbers is split as the parameter is; one number, such as
// Adam's step, is for all of it.
Tree changed_state(const Tree& state, int64_t dim, at::IntArrayRef shape, const Change& change) {
  auto dict = make_dict();
  for (const auto& [key, value] : items(state)) {
    const bool single = !value.isTensor() || value.toTensor().dim() == 0;
    if (!single && value.toTensor().sizes() != shape) {
      throw InputError(format("the optimiser's {} is not of its parameter's shape", as_string(key, "state")),
                       "parallel.tensor, optim.name",
                       "a layer's ranks cannot share it out: take another optimiser, or parallel.tensor 1");
    }
    put(dict, key, single ? value : Tree(change(value.toTensor(), dim)));
  }
  return dict;
}

using ShapeOf = std::function<std::vector<int64_t>(const at::Tensor& parameter, int64_t dim)>;

Tree changed_optimizer(const SplitParameters& split, const std::vector<at::Tensor>& parameters,
                       const Tree& optimizer, const ShapeOf& shape_of, const Change& change) {
  auto states = make_dict();
  for (const auto& [index, state] : items(get(optimizer, "state"))) {
    const auto number = static_cast<size_t>(as_int(index, "state"));
    const auto dim = number < parameters.size() ? split.dim_of(parameters[number]) : std::nullopt;
    put(states, index,
        dim && state.isGenericDict() ? changed_state(state, *dim, shape_of(parameters[number], *dim), change)
                                     : state);
  }
  auto dict = make_dict();
  for (const auto& [key, value] : items(optimizer))
    put(dict, key, as_string(key, "optimizer") == "state" ? states : value);
  return dict;
}

}  // namespace

SplitParameters::SplitParameters(const Net& net, Team team) : team_(std::move(team)) {
  for (const auto& module : net.named_modules("", /*include_self=*/false)) {
    const auto* layer = dynamic_cast<const SplitLayer*>(module.value().get());
    if (!layer) continue;
    for (const auto& item : module.value()->named_parameters(/*recurse=*/false)) {
      const int64_t dim = layer->split_of(item.key());
      if (dim < 0) continue;
      dims_.emplace(module.key() + "." + item.key(), dim);
      dims_of_.emplace(item.value().unsafeGetTensorImpl(), dim);
    }
  }
}

std::optional<int64_t> SplitParameters::dim_of(const std::string& name) const {
  return found(dims_, name);
}

std::optional<int64_t> SplitParameters::dim_of(const at::Tensor& parameter) const {
  return found(dims_of_, static_cast<const void*>(parameter.unsafeGetTensorImpl()));
}

at::Tensor SplitParameters::whole(const at::Tensor& own, int64_t dim) const {
  return at::cat(team_.all_gather(own.detach()), dim);
}

at::Tensor SplitParameters::own(const at::Tensor& whole, int64_t dim) const {
  const int64_t size = whole.size(dim) / team_.world();
  return whole.narrow(dim, team_.rank() * size, size);
}

std::vector<int64_t> SplitParameters::whole_shape(const at::Tensor& own, int64_t dim) const {
  auto shape = own.sizes().vec();
  shape[static_cast<size_t>(dim)] *= team_.world();
  return shape;
}

Tree whole_state_dict(const SplitParameters& split, const Tree& own) {
  return changed(split, own, [&](const auto& tensor, int64_t dim) { return split.whole(tensor, dim); });
}

Tree own_state_dict(const SplitParameters& split, const Tree& whole) {
  return changed(split, whole, [&](const auto& tensor, int64_t dim) { return split.own(tensor, dim); });
}

Tree whole_outline(const SplitParameters& split, const Tree& own) {
  return changed(split, own, [&](const auto& tensor, int64_t dim) {
    return at::empty(split.whole_shape(tensor, dim), tensor.options().device(at::kMeta));
  });
}

Tree whole_optimizer_state(const SplitParameters& split, const std::vector<at::Tensor>& parameters,
                           const Tree& own) {
  return changed_optimizer(
      split, parameters, own, [](const auto& parameter, int64_t) { return parameter.sizes().vec(); },
      [&](const auto& tensor, int64_t dim) { return split.whole(tensor, dim); });
}

Tree own_optimizer_state(const SplitParameters& split, const std::vector<at::Tensor>& parameters,
                         const Tree& whole) {
  return changed_optimizer(
      split, parameters, whole,
      [&](const auto& parameter, int64_t dim) { return split.whole_shape(parameter, dim); },
      [&](const auto& tensor, int64_t dim) { return split.own(tensor, dim).clone(); });
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

namespace {

class TensorModel : public TrainedModel {
 public:
  TensorModel(std::shared_ptr<Net> net, std::unique_ptr<TrainedModel> model, const Mesh& mesh)
      : TrainedModel(std::move(net)),
        model_(std::move(model)),
        split_(*net_, mesh.tensor()),
        is_first_copy_(mesh.data().first()) {
    if (!split_.empty()) return;
    throw InputError("the model has no layers that split among ranks", "parallel.tensor",
                     "make it of the layers that WantedModel brings, or set parallel.tensor to 1");
  }

  at::Tensor learn(const at::Tensor& input, const at::Tensor& target, const StepContext& context) override {
    return model_->learn(input, target, context);
  }
  at::Tensor forward(const at::Tensor& input) override { return model_->forward(input); }
  std::vector<at::Tensor> parameters() const override { return model_->parameters(); }
  std::shared_ptr<void> no_sync() override { return model_->no_sync(); }
  std::vector<std::vector<std::string>> buckets() override { return model_->buckets(); }
  void restore_buckets(const std::vector<std::vector<std::string>>& names) override {
    model_->restore_buckets(names);
  }
  DdpCore* ddp_core() override { return model_->ddp_core(); }
  bool exchanges() const override { return model_->exchanges(); }

  Tree state_dict() const override;
  void load_state_dict(const Tree& whole, const std::string& file) override;
  Tree whole_optimizer(const Tree& own) const override;
  Tree own_optimizer(const Tree& whole) const override;
  void clip_gradients(double most) const override;
  void share_overflow(at::Tensor& found) const override;

 private:
  at::Tensor whole_norms(const std::vector<at::Tensor>& own) const;

  std::unique_ptr<TrainedModel> model_;
  SplitParameters split_;
  bool is_first_copy_;  // the one that rank 0 has a part of; the others' parts are the same
};

Tree TensorModel::state_dict() const {
  const auto own = model_->state_dict();
  return is_first_copy_ ? whole_state_dict(split_, own) : own;
}

void TensorModel::load_state_dict(const Tree& whole, const std::string& file) {
  check_state_dict(whole_outline(split_, module_state_dict(*net_)), whole, file);
  model_->load_state_dict(own_state_dict(split_, whole), file);
}

Tree TensorModel::whole_optimizer(const Tree& own) const {
  const auto parts = model_->whole_optimizer(own);
  return is_first_copy_ ? whole_optimizer_state(split_, parameters(), parts) : parts;
}

Tree TensorModel::own_optimizer(const Tree& whole) const {
  return model_->own_optimizer(own_optimizer_state(split_, parameters(), whole));
}

void TensorModel::clip_gradients(double most) const {
  clip_grad_norm_(parameters(), most, [this](const auto& own) { return whole_norms(own); });
}

// What is split counts with all its parts, and what each rank has whole counts once: as one model's would.
at::Tensor TensorModel::whole_norms(const std::vector<at::Tensor>& own) const {
  const auto params = parameters();
  std::vector<at::Tensor> norms;
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < own.size(); ++i) {
    if (!own[i].defined()) continue;
    if (split_.dim_of(params[i])) numbers.push_back(static_cast<int64_t>(norms.size()));
    norms.push_back(own[i]);
  }
  if (norms.empty()) return torch::zeros({0});
  const auto all = torch::stack(norms);
  const auto places = torch::tensor(numbers, torch::kLong).to(all.device());
  std::vector<at::Tensor> squares{all.index_select(0, places).to(torch::kFloat64).square()};
  split_.team().sum(squares);
  return all.index_copy(0, places, squares[0].sqrt().to(all.scalar_type()));
}

// A step is left out by all ranks of a layer, or by none.
void TensorModel::share_overflow(at::Tensor& found) const {
  std::vector<double> most{found.item<double>()};
  split_.team().max(most);
  found.fill_(most[0]);
}

}  // namespace

std::unique_ptr<TrainedModel> make_tensor_model(std::shared_ptr<Net> net, std::unique_ptr<TrainedModel> model,
                                                const Mesh& mesh) {
  return std::make_unique<TensorModel>(std::move(net), std::move(model), mesh);
}

}  // namespace lockstep::train
