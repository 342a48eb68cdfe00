// lockstep model: models that Python wrote with torch.export.save.
#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/paths.h"
#include "tools/model_check/model_check.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {

// lockstep model check: a file of torch.export.save.

static int run_model_check(const std::vector<std::string>& args) {
  model_check::ModelCheck asked;
  Options options(
      "model check", "shows what a .pt2 holds, runs it, and compares it with Python",
      {"lockstep model check model.pt2", "lockstep model check model.pt2 --eval model.eval.pt2 --json",
       "lockstep model check model.pt2 --against model.sample.pt"});
  options.positional("MODEL.pt2", asked.path, "the file that torch.export.save wrote");
  options.add("eval", asked.eval_path, "FILE", "the same model, exported after model.eval()");
  options.add("against", asked.sample, "FILE",
              "Python's results (lockstep model template --sample) to compare with; exit 1 if they differ");
  options.flag("json", asked.json, "one JSON object, for programs");
  if (!options.parse(args)) return kDone;
  for (auto* path : {&asked.path, &asked.eval_path, &asked.sample}) *path = base::find_path(*path);
  return model_check::check_model(asked);
}

// lockstep model template: a Python script that exports a model.

static int run_model_template(const std::vector<std::string>& args) {
  model_check::TemplateOptions asked;
  Options options(
      "model template", "prints a Python script that exports your model",
      {"lockstep model template > export.py", "lockstep model template --input int64:? --input int64:?",
       "lockstep model template --input float32:3x224x224 --eval --sample --output resnet.pt2"});
  options.add("input", asked.inputs, "DTYPE:SIZES",
              "dtype and shape of an argument of forward, without the batch dimension (default "
              "float32:1x28x28); repeatable; ? marks a dynamic size, as in int64:?");
  options.flag("eval", asked.eval, "also export the model after model.eval(), for model.eval_path");
  options.flag("sample", asked.sample, "also write Python's results, for check --against");
  options.add("output", asked.output, "NAME", "the file that the script writes (default model.pt2)");
  if (!options.parse(args)) return kDone;
  output::print(model_check::export_script(asked));
  output::check();
  return kDone;
}

int run_model(const std::vector<std::string>& args) {
  static const CommandGroup group = {
      .name = "model",
      .summary = "checks a model exported from Python, or helps to export one",
      .kind = "action",
      .kinds = "actions",
      .word = "ACTION",
      .examples = {"lockstep model template --input float32:3x224x224 --eval --sample > export.py",
                   "lockstep model check model.pt2 --eval model.eval.pt2 --against model.sample.pt"},
      .members = {{"check", "shows what a .pt2 holds, runs it, and compares it with Python", run_model_check},
                  {"template", "prints a Python script that exports your model", run_model_template}}};
  return run_group(group, args);
}

}  // namespace lockstep::cli
