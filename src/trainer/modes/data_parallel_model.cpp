#include "trainer/modes/data_parallel_model.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/parallel/data_parallel.h"

namespace lockstep::train {
namespace {

using Wrapped = DataParallel<Net>;

class DataParallelModel : public TrainedModel {
 public:
  DataParallelModel(std::shared_ptr<Net> net, std::unique_ptr<Wrapped> wrapped)
      : TrainedModel(std::move(net)), wrapped_(std::move(wrapped)) {}
  at::Tensor forward(const at::Tensor& input) override { return wrapped_->forward(input); }
  std::vector<at::Tensor> parameters() const override { return net_->parameters(); }
  std::vector<at::Device> devices() const override { return wrapped_->devices(); }

 protected:
  std::unique_ptr<Wrapped> wrapped_;
};

// Each device computes its own loss, and nothing but these numbers is gathered.
class LossInForward : public DataParallelModel {
 public:
  using DataParallelModel::DataParallelModel;
  at::Tensor learn(const at::Tensor& input, const at::Tensor& target, const StepContext& context) override {
    const auto loss = [&] {
      const auto scope = context.autocast();
      return wrapped_->loss(input, target, context.criterion, [&](const at::Tensor& wanted) {
        return torch::full({}, context.weight(wanted), wanted.options().dtype(torch::kDouble));
      });
    }();
    context.backward(loss);
    return loss;
  }
};

}  // namespace

std::unique_ptr<TrainedModel> make_data_parallel_model(std::shared_ptr<Net> net, at::Device first,
                                                       const DataParallelSettings& settings,
                                                       const std::function<std::shared_ptr<Net>()>& another) {
  auto devices = devices_like(first, static_cast<int>(settings.devices));
  log::info(format("data_parallel: {} device{} ({}), {}", devices.size(), devices.size() == 1 ? "" : "s",
                   first.is_cpu() ? "logical, a thread each" : "GPUs",
                   settings.loss_in_forward ? "a loss on each" : "outputs gathered on the first"));
  auto wrapped = std::make_unique<Wrapped>(net, std::move(devices), another);
  if (settings.loss_in_forward) return std::make_unique<LossInForward>(std::move(net), std::move(wrapped));
  return std::make_unique<DataParallelModel>(std::move(net), std::move(wrapped));
}

}  // namespace lockstep::train
