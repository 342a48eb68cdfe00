// A model of one's own: layers with a way around each, for any samples and any number of classes.
#include <lockstep/models/model.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

namespace {

namespace nn = torch::nn;

// The layers are made in the order of the Python twin, so that one seed gives both the same parameters.
class Residual : public lockstep::Net {
 public:
  Residual(int64_t inputs, int64_t width, int64_t classes)
      : in_(register_module("into", nn::Linear(inputs, width))),
        norm_(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})))),
        middle_(register_module("middle", nn::Linear(width, width))),
        out_(register_module("out", nn::Linear(width, classes))) {}

  torch::Tensor forward(const torch::Tensor& input) override {
    const auto x = torch::relu(in_(input.flatten(1)));
    return out_(x + torch::tanh(middle_(norm_(x))));
  }

 private:
  nn::Linear in_;
  nn::LayerNorm norm_;
  nn::Linear middle_, out_;
};

std::shared_ptr<lockstep::Net> make_residual(const lockstep::ModelRequest& wanted) {
  int64_t inputs = 1;
  for (const int64_t size : wanted.input_shape) inputs *= size;
  const auto width = lockstep::option(wanted.settings.options, "width", int64_t{32});
  return std::make_shared<Residual>(inputs, width, wanted.classes);
}

}  // namespace

LOCKSTEP_MODEL(residual, .help = "a layer with a way around it, `options.width` wide",
               .reads = {"options.width"}, .make = make_residual)
