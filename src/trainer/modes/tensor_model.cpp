#include "trainer/modes/tensor_model.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/optim/clip.h"
#include "trainer/modes/split_parameters.h"

namespace lockstep::train {
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
