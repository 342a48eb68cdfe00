#include "trainer/setup/try_model.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "trainer/modes/autocast.h"

namespace lockstep::train {
namespace {

constexpr int64_t kSamples = 2;

/// The first samples as a set of their own, so that metrics size themselves by it.
class Few : public Dataset {
 public:
  explicit Few(std::shared_ptr<const Dataset> all) : all_(std::move(all)) {}
  int64_t size() const override { return std::min(kSamples, all_->size()); }
  Batch get(at::ArrayRef<int64_t> indices, bool pinned) const override {
    auto batch = all_->get(indices, pinned);
    batch.indices = indices.vec();
    return batch;
  }

 private:
  std::shared_ptr<const Dataset> all_;
};

/// Of libtorch's pages the line that says what is wrong; TorchScript's own comes last.
std::string reason_of(const std::string& text) {
  const auto script = text.rfind("RuntimeError: ");
  const auto line = script == std::string::npos ? text : text.substr(script);
  return line.substr(0, line.find('\n'));
}

std::string model_key(const Settings& settings) {
  return settings.model.path.empty() ? "model.name, task.name" : "model.path: " + settings.model.path;
}

/// Runs one part of a step; whatever it throws is the input's fault, for no step has been taken yet.
template <class Part>
auto tried(const std::string& what, const Settings& settings, Part&& part) {
  try {
    return part();
  } catch (const Error& error) {
    throw InputError(error.what(), error.where().empty() ? model_key(settings) : error.where(), error.hint());
  } catch (const std::exception& error) {
    throw InputError(what + ": " + reason_of(error.what()), model_key(settings),
                     "take a model made for this task's samples and classes, or set task.classes");
  }
}

std::string shape_text(const at::Tensor& tensor) {
  return c10::str(tensor.sizes());
}

}  // namespace

void try_model(const Setup& setup) {
  const auto& set = setup.data.train ? setup.data.train : setup.data.eval;
  if (!set || set->size() == 0) return;
  const torch::NoGradGuard no_grad;
  const auto& settings = setup.settings;
  const auto device = setup.team->device();
  auto few = setup.data;
  few.eval = std::make_shared<Few>(set);
  std::vector<int64_t> indices(static_cast<size_t>(few.eval->size()));
  std::iota(indices.begin(), indices.end(), 0);
  const auto batch = few.eval->get(indices);

  const auto net = setup.task->model(settings.for_task(), setup.data);
  net->to(device);
  net->eval();
  const Autocast scope(device.type(), autocast_type(settings.train.precision));
  const auto output = tried("the model does not take the task's samples of " + shape_text(batch.input),
                            settings, [&] { return net->forward(batch.input.to(device)); });
  tried("the task does not take the model's output of " + shape_text(output), settings, [&] {
    if (setup.data.eval)
      setup.task->metrics(few)->add(output.to(torch::kCPU), batch.target, batch.indices, {});
    LossOptions loss;
    if (setup.data.class_weights.defined()) loss.class_weights = setup.data.class_weights.to(output.device());
    setup.task->loss(output, batch.target.to(output.device()), loss);
  });
}

}  // namespace lockstep::train
