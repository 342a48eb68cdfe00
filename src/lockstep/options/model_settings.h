#pragma once
// What a model is made from.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// The section `model` of a config.
struct ModelSettings {
  std::string name = {};                            // a row of the table of models; empty = the task's own
  std::string path = {};                            // exported, torchscript, and pretrained models
  std::string eval_path = {};                       // exported: the same model after eval()
  std::vector<int64_t> hidden = {};                 // mlp widths; empty = the task's own
  std::vector<int64_t> devices = {};                // of one rank, a stage each
  bool checkpointing = false;                       // activations are computed again in backward
  std::map<std::string, std::string> options = {};  // for a model of the user's own

  bool operator==(const ModelSettings&) const = default;
};

}  // namespace lockstep
