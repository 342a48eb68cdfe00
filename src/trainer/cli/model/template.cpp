// lockstep model template: a Python script that exports a model.
#include "tools/model_check/template.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {

int run_model_template(const std::vector<std::string>& args) {
  model_check::TemplateOptions asked;
  Options options(
      "model template", "a Python script that exports your model, printed",
      {"lockstep model template > export.py", "lockstep model template --input int64:? --input int64:?",
       "lockstep model template --input float32:3x224x224 --eval --sample --output resnet.pt2"});
  options.add("input", asked.inputs, "DTYPE:SIZES",
              "an argument of forward, without the batch (default float32:1x28x28); once for each; ? is a "
              "size that may "
              "change: int64:?");
  options.flag("eval", asked.eval, "exports it a second time, for evaluation: model.eval_path");
  options.flag("sample", asked.sample, "also has it write what Python computes, for check --against");
  options.add("output", asked.output, "NAME", "the file that the script writes (default model.pt2)");
  if (!options.parse(args)) return kDone;
  output::print(model_check::export_script(asked));
  output::check();
  return kDone;
}

}  // namespace lockstep::cli
