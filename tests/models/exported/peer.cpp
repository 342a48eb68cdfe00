// The C++ half of tests/e2e/test_exported.py: trains what export.py has exported, as that does.
//   exported_peer train FOLDER sgd|adam flip|twin NAME...   into FOLDER/NAME.sgd.flip.got.safetensors
//   exported_peer ddp FOLDER NAME...      a rank of a job: rank 0's into FOLDER/NAME.ddp2.got.safetensors
// flip: eval() turns off the graph's training flags; twin: it takes NAME.eval.pt2.
// Prints a line a model: "NAME ok", "NAME ok, evaluation error: MESSAGE" or "NAME error: MESSAGE".
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdio>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/pt.h"
#include "lockstep/checkpoint/rng.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/models/exported.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/ddp.h"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;
using Values = std::vector<c10::IValue>;
using Forward = std::function<Values(const Values&)>;

struct Step {
  Values inputs;
  Tensors targets;
};

/// What NAME.data.pt holds.
struct Data {
  std::vector<Step> steps;
  Values evaluated;
};

Tensors tensors_of(const Values& values) {
  Tensors tensors;
  for (const auto& value : values)
    if (value.isTensor()) tensors.push_back(value.toTensor());
  return tensors;
}

Data read_data(const std::string& path) {
  const auto file = read_pt(path);
  Data data{.steps = {}, .evaluated = elements(get(file, "eval"))};
  for (const auto& step : elements(get(file, "steps")))
    data.steps.push_back({elements(get(step, "inputs")), tensors_of(elements(get(step, "targets")))});
  return data;
}

at::Tensor loss_of(const Tensors& outputs, const Tensors& targets) {
  at::Tensor sum;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].is_floating_point()) continue;
    const auto loss = at::mse_loss(outputs[i].to(at::kFloat), targets.at(i));
    sum = sum.defined() ? sum + loss : loss;
  }
  return sum;
}

std::unique_ptr<Optimizer> optimizer_of(const std::string& name, const ExportedNet& net) {
  Tensors trained;
  for (const auto& parameter : net.parameters())
    if (parameter.requires_grad()) trained.push_back(parameter);
  if (name == "adam") return std::make_unique<Adam>(trained, AdamOptions{.lr = 1e-3});
  return std::make_unique<Sgd>(trained, SgdOptions{.lr = 0.01, .momentum = 0.9});
}

/// A training, and what it leaves by export.py's names.
class Training {
 public:
  Training(ExportedNet& net, Forward forward, const std::string& optimizer)
      : net_(net), forward_(std::move(forward)), optimizer_(optimizer_of(optimizer, net)) {}

  void train(const std::vector<Step>& steps, uint64_t seed) {
    torch::manual_seed(seed);
    net_.train();
    for (const auto& step : steps) take(step);
    keep("generator", rng_state());
    for (const auto& parameter : net_.named_parameters())
      keep("parameter." + parameter.key(), parameter.value());
    keep_buffers("buffer.");
  }

  void evaluate(const Values& inputs) {
    net_.eval();
    const torch::NoGradGuard no_grad;
    keep_all("eval.output", tensors_of(forward_(inputs)));
    keep_buffers("eval.buffer.");
  }

  void write(const std::string& path) const { write_safetensors(path, left_); }

 private:
  void take(const Step& step) {
    const auto name = "step" + std::to_string(count_);
    optimizer_->zero_grad();
    const auto outputs = tensors_of(forward_(step.inputs));
    const auto loss = loss_of(outputs, step.targets);
    loss.backward();
    keep_all(name + ".output", outputs);
    keep(name + ".loss", loss);
    if (count_++ == 0) keep_gradients();
    optimizer_->step();
  }

  void keep(const std::string& name, const at::Tensor& tensor) {
    put(left_, name, tensor.detach().clone(at::MemoryFormat::Contiguous));
  }
  void keep_all(const std::string& name, const Tensors& tensors) {
    for (size_t i = 0; i < tensors.size(); ++i) keep(name + std::to_string(i), tensors[i]);
  }
  void keep_buffers(const std::string& name) {
    for (const auto& buffer : net_.named_buffers()) keep(name + buffer.key(), buffer.value());
  }
  void keep_gradients() {
    for (const auto& parameter : net_.named_parameters())
      if (parameter.value().grad().defined()) keep("gradient." + parameter.key(), parameter.value().grad());
  }

  ExportedNet& net_;
  Forward forward_;
  std::unique_ptr<Optimizer> optimizer_;
  Tree left_ = make_dict();
  int count_ = 0;
};

std::string in_one_line(std::string text) {
  for (auto& character : text)
    if (character == '\n') character = ' ';
  return text;
}

/// What the work says, or "error: MESSAGE".
std::string outcome(const std::function<std::string()>& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return "error: " + in_one_line(describe(error));
  }
}

/// Evaluation may be refused without a twin: what was trained is written all the same.
std::string train_alone(const std::string& stem, const std::string& optimizer, const std::string& mode) {
  const auto net = load_exported(stem + ".pt2", mode == "twin" ? stem + ".eval.pt2" : "");
  const auto data = read_data(stem + ".data.pt");
  Training training(
      *net, [&net](const Values& inputs) { return net->run(inputs); }, optimizer);
  training.train(data.steps, 7);
  const auto refused = outcome([&] { return training.evaluate(data.evaluated), ""; });
  training.write(stem + "." + optimizer + "." + mode + ".got.safetensors");
  return refused.empty() ? "ok" : "ok, evaluation " + refused;
}

/// A rank's rows of what every rank has read.
std::vector<Step> part_of(std::vector<Step> steps, const Session& session) {
  const auto cut = [&session](const at::Tensor& whole) {
    return whole.chunk(session.world()).at(static_cast<size_t>(session.rank()));
  };
  for (auto& step : steps) {
    for (auto& input : step.inputs)
      if (input.isTensor()) input = cut(input.toTensor());
    for (auto& target : step.targets) target = cut(target);
  }
  return steps;
}

/// As a program would: one tensor through forward(), anything else through run().
template <class Model>
Forward forward_of(const Model& model) {
  return [model](const Values& inputs) -> Values {
    const auto& facts = model->module()->facts();
    if (facts.inputs.size() == 1 && facts.outputs.size() == 1)
      return {model->forward(inputs.at(0).toTensor())};
    return model->call([](ExportedNet& net, const Values& given) { return net.run(given); }, inputs);
  };
}

std::string train_as_rank(const std::string& stem, const Session& session) {
  const auto model = ddp(load_exported(stem + ".pt2"), session);
  Training training(*model->module(), forward_of(model), "sgd");
  training.train(part_of(read_data(stem + ".data.pt").steps, session),
                 7 + static_cast<uint64_t>(session.rank()));
  if (session.rank() == 0)
    training.write(stem + ".ddp" + std::to_string(session.world()) + ".got.safetensors");
  return "ok";
}

using Words = std::vector<std::string>;

int train_all(const Words& words) {
  torch::set_num_threads(1);
  for (size_t i = 4; i < words.size(); ++i) {
    const auto end = outcome([&] { return train_alone(words[1] + "/" + words[i], words[2], words[3]); });
    std::printf("%s %s\n", words[i].c_str(), end.c_str());
    std::fflush(stdout);
  }
  return kDone;
}

int train_all_as_rank(const Words& words) {
  return run([&words] {
    const Session session;
    torch::set_num_threads(1);
    for (size_t i = 2; i < words.size(); ++i) {
      const auto end = outcome([&] { return train_as_rank(words[1] + "/" + words[i], session); });
      session.print("{} {}", words[i], end);
    }
  });
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const lockstep::Words words(argv + 1, argv + argc);
  if (words.size() > 4 && words[0] == "train") return lockstep::train_all(words);
  if (words.size() > 2 && words[0] == "ddp") return lockstep::train_all_as_rank(words);
  return std::fputs("exported_peer train FOLDER sgd|adam flip|twin NAME... | ddp FOLDER NAME...\n", stderr),
         2;
}
