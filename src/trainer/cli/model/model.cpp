// lockstep model: models that Python wrote with torch.export.save.
#include "trainer/cli/command_group.h"

namespace lockstep::cli {

int run_model_check(const std::vector<std::string>& args);
int run_model_template(const std::vector<std::string>& args);

int run_model(const std::vector<std::string>& args) {
  static const CommandGroup group = {
      .name = "model",
      .summary = "a model that Python exported: what it holds, how to export one",
      .kind = "action",
      .kinds = "actions",
      .examples = {"lockstep model template --input float32:3x224x224 --eval --sample > export.py",
                   "lockstep model check model.pt2 --eval model.eval.pt2 --against model.sample.safetensors"},
      .members = {
          {"check", "what a .pt2 holds, that it runs, and whether it computes as Python", run_model_check},
          {"template", "a Python script that exports your model", run_model_template}}};
  return run_group(group, args);
}

}  // namespace lockstep::cli
