// The C++ half of test_bert.py.
//   bert_peer logits FOLDER CLASSES IN OUT       what a folder's model says of the "input" in IN
//   bert_peer draw SEED CLASSES OUT [KEY=VALUE]  the parameters of a model newly drawn
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/models/model.h"

namespace lockstep {
namespace {

std::shared_ptr<Net> bert(const ModelSettings& settings, const std::string& classes) {
  return make_model(settings, "bert", {3, 16}, std::stol(classes));
}

void write_logits(const std::vector<std::string>& words) {
  const auto net = bert({.path = words[0]}, words[1]);
  net->eval();
  const torch::NoGradGuard no_grad;
  const auto input = get(read_safetensors(words[2]), "input").toTensor();
  write_safetensors(words[3], make_dict({{"logits", net->forward(input)}}));
}

void write_drawn(const std::vector<std::string>& words) {
  ModelSettings settings;
  for (size_t i = 3; i < words.size(); ++i) {
    const auto equals = words[i].find('=');
    settings.options[words[i].substr(0, equals)] = words[i].substr(equals + 1);
  }
  torch::manual_seed(std::stoul(words[0]));
  write_safetensors(words[2], module_state_dict(*bert(settings, words[1])));
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 2, argv + argc);
  torch::set_num_threads(1);
  try {
    argv[1] == std::string("draw") ? lockstep::write_drawn(words) : lockstep::write_logits(words);
    return lockstep::kDone;
  } catch (const std::exception& error) {
    std::fputs((lockstep::describe(error) + "\n").c_str(), stderr);
    return lockstep::exit_status(error);
  }
}
