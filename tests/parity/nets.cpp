#include "parity/nets.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include <map>
#include <stdexcept>

#include "lockstep/models/pima_net.h"
#include "lockstep/models/simple_cnn.h"

namespace lockstep::parity {
namespace {

namespace nn = torch::nn;
using Outputs = std::vector<at::Tensor>;

struct Mlp : ParityNet {
  std::shared_ptr<PimaNet> net = register_module("net", std::make_shared<PimaNet>());
  Outputs forward(const at::Tensor& x, int64_t) override { return {net->forward(x)}; }
};

struct Cnn : ParityNet {
  std::shared_ptr<SimpleCNN> net = register_module("net", std::make_shared<SimpleCNN>());
  Outputs forward(const at::Tensor& x, int64_t) override { return {net->forward(x)}; }
  std::vector<int64_t> input_shape() const override { return {1, 28, 28}; }
  int64_t classes() const override { return 10; }
};

struct BatchNormNet : ParityNet {
  nn::Conv2d conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(1, 4, 3)));
  nn::BatchNorm2d bn1 = register_module("bn1", nn::BatchNorm2d(4));
  nn::Linear fc1 = register_module("fc1", nn::Linear(4 * 6 * 6, 16));
  nn::BatchNorm1d bn2 = register_module("bn2", nn::BatchNorm1d(16));
  nn::Linear fc2 = register_module("fc2", nn::Linear(16, 2));
  Outputs forward(const at::Tensor& x, int64_t) override {
    const auto features = torch::relu(bn1(conv(x))).flatten(1);
    return {fc2(torch::relu(bn2(fc1(features))))};
  }
  std::vector<int64_t> input_shape() const override { return {1, 8, 8}; }
};

struct DropoutNet : ParityNet {
  nn::Linear fc1 = register_module("fc1", nn::Linear(8, 32));
  nn::Dropout drop = register_module("drop", nn::Dropout(0.5));
  nn::Linear fc2 = register_module("fc2", nn::Linear(32, 2));
  Outputs forward(const at::Tensor& x, int64_t) override { return {fc2(drop(torch::relu(fc1(x))))}; }
};

// Holds a weight that another layer holds too.
struct Shared : nn::Module {
  explicit Shared(const at::Tensor& shared) : weight(register_parameter("weight", shared)) {}
  at::Tensor weight;
};

struct Tied : ParityNet {
  nn::Linear in = register_module("in", nn::Linear(nn::LinearOptions(8, 8).bias(false)));
  std::shared_ptr<Shared> out = register_module("out", std::make_shared<Shared>(in->weight));
  nn::Linear head = register_module("head", nn::Linear(8, 2));
  Outputs forward(const at::Tensor& x, int64_t) override {
    return {head(torch::relu(torch::matmul(torch::relu(in(x)), out->weight)))};
  }
};

struct Frozen : ParityNet {
  nn::Linear fc1 = register_module("fc1", nn::Linear(8, 16));
  nn::Linear fc2 = register_module("fc2", nn::Linear(16, 2));
  Frozen() { fc1->weight.set_requires_grad(false); }
  Outputs forward(const at::Tensor& x, int64_t) override { return {fc2(torch::relu(fc1(x)))}; }
};

struct Sparse : ParityNet {
  nn::Embedding embedding =
      register_module("embedding", nn::Embedding(nn::EmbeddingOptions(20, 8).sparse(true)));
  nn::Linear fc = register_module("fc", nn::Linear(8, 2));
  Outputs forward(const at::Tensor& x, int64_t) override { return {fc(embedding(x).mean(1))}; }
  bool takes_indices() const override { return true; }
  std::vector<int64_t> input_shape() const override { return {5}; }
};

struct Lstm : ParityNet {
  nn::LSTM lstm = register_module("lstm", nn::LSTM(nn::LSTMOptions(4, 6).num_layers(2).batch_first(true)));
  nn::Linear fc = register_module("fc", nn::Linear(6, 2));
  Outputs forward(const at::Tensor& x, int64_t) override {
    const auto [output, state] = lstm(x);
    return {fc(output.select(1, -1))};
  }
  std::vector<int64_t> input_shape() const override { return {5, 4}; }
};

// pick 0: branch a, 1: branch b, 2: both; c is never used.
struct Branch : ParityNet {
  nn::Linear trunk = register_module("trunk", nn::Linear(8, 16));
  nn::Linear a = register_module("a", nn::Linear(16, 2));
  nn::Linear b = register_module("b", nn::Linear(16, 2));
  nn::Linear c = register_module("c", nn::Linear(16, 2));
  Outputs forward(const at::Tensor& x, int64_t pick) override {
    const auto hidden = torch::relu(trunk(x));
    if (pick == 0) return {a(hidden)};
    if (pick == 1) return {b(hidden)};
    return {a(hidden) + b(hidden)};
  }
};

// Two outputs, of which the loss takes one or both.
struct TwoOutputs : ParityNet {
  nn::Linear trunk = register_module("trunk", nn::Linear(8, 16));
  nn::Linear a = register_module("a", nn::Linear(16, 2));
  nn::Linear b = register_module("b", nn::Linear(16, 2));
  Outputs forward(const at::Tensor& x, int64_t) override {
    const auto hidden = torch::relu(trunk(x));
    return {a(hidden), b(hidden), x};
  }
};

struct Never : ParityNet {
  nn::Linear fc1 = register_module("fc1", nn::Linear(8, 16));
  nn::Linear never = register_module("never", nn::Linear(16, 16));
  nn::Linear fc2 = register_module("fc2", nn::Linear(16, 2));
  Outputs forward(const at::Tensor& x, int64_t) override { return {fc2(torch::relu(fc1(x)))}; }
};

struct Reuse : ParityNet {
  nn::Linear in = register_module("in", nn::Linear(8, 16));
  nn::Linear twice = register_module("twice", nn::Linear(16, 16));
  nn::Linear never = register_module("never", nn::Linear(16, 16));
  nn::Linear out = register_module("out", nn::Linear(16, 2));
  Outputs forward(const at::Tensor& x, int64_t) override {
    return {out(torch::relu(twice(torch::relu(twice(torch::relu(in(x)))))))};
  }
};

// Weights of equal shape, for PowerSGD's batches.
struct Twins : ParityNet {
  nn::Linear in = register_module("in", nn::Linear(8, 24));
  nn::Linear a = register_module("a", nn::Linear(24, 24));
  nn::Linear b = register_module("b", nn::Linear(24, 24));
  nn::Linear out = register_module("out", nn::Linear(24, 2));
  Outputs forward(const at::Tensor& x, int64_t) override {
    return {out(torch::relu(b(torch::relu(a(torch::relu(in(x)))))))};
  }
};

template <class Net>
std::shared_ptr<ParityNet> make() {
  return std::make_shared<Net>();
}

}  // namespace

std::shared_ptr<ParityNet> make_net(const std::string& model) {
  static const std::map<std::string, std::shared_ptr<ParityNet> (*)()> known = {
      {"mlp", make<Mlp>},         {"cnn", make<Cnn>},
      {"bn", make<BatchNormNet>}, {"dropout", make<DropoutNet>},
      {"tied", make<Tied>},       {"frozen", make<Frozen>},
      {"sparse", make<Sparse>},   {"lstm", make<Lstm>},
      {"branch", make<Branch>},   {"outputs", make<TwoOutputs>},
      {"never", make<Never>},     {"reuse", make<Reuse>},
      {"twins", make<Twins>},
  };
  const auto found = known.find(model);
  if (found == known.end()) throw std::runtime_error("cases.txt names an unknown model: " + model);
  return found->second();
}

}  // namespace lockstep::parity
