// lockstep model check: a file of torch.export.save.
#include "tools/model_check/check.h"

#include "lockstep/base/error.h"
#include "lockstep/base/paths.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {

int run_model_check(const std::vector<std::string>& args) {
  model_check::ModelCheck asked;
  Options options(
      "model check", "what a .pt2 holds, that it runs, and whether it computes as Python",
      {"lockstep model check model.pt2", "lockstep model check model.pt2 --eval model.eval.pt2 --json",
       "lockstep model check model.pt2 --against model.sample.safetensors"});
  options.positional("MODEL.pt2", asked.path, "what torch.export.save wrote");
  options.add("eval", asked.eval_path, "FILE", "the same model, exported after model.eval()");
  options.add(
      "against", asked.sample, "FILE",
      "what Python computed with it (lockstep model template --sample); a difference is exit status 1");
  options.flag("json", asked.json, "one JSON object, for programs");
  if (!options.parse(args)) return kDone;
  for (auto* path : {&asked.path, &asked.eval_path, &asked.sample}) *path = base::find_path(*path);
  return model_check::check_model(asked);
}

}  // namespace lockstep::cli
