// lockstep eval: the metrics of any checkpoint, at any world size.
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/checkpoint/state_dict.h"
#include "trainer/cli/options.h"
#include "trainer/cli/saved_options.h"
#include "trainer/setup/saved.h"
#include "trainer/setup/setup.h"
#include "trainer/setup/task_memory.h"
#include "trainer/step/acting.h"
#include "trainer/step/evaluate.h"

namespace lockstep::cli {
namespace {

struct EvalOptions {
  train::Command command;
  std::string checkpoint;
  bool json = false;
};

using Json = nlohmann::ordered_json;

// One object, and nothing else there. What a number cannot be in JSON (NaN) is null.
void print_json(const Json& told) {
  Json json = {{"schema", 1}};
  json.update(told);
  output::print(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

int play(const train::Setup& setup, const Actor& actor, Net& net, const std::string& path, bool json) {
  const auto play = train::play_episodes(setup, actor, net);
  if (setup.team->first() && json) {
    Json metrics = {{"reward", play.reward}, {"least", play.least}, {"largest", play.largest}};
    if (play.goal) metrics.update(Json{{"goal", *play.goal}, {"solved", play.solved()}});
    print_json({{"checkpoint", path}, {"metrics", metrics}});
  } else if (setup.team->first()) {
    output::line(path + ", played");
    output::line(train::report_of(play));
  }
  setup.team->barrier();
  return kDone;
}

void print_metrics(const Metrics& metrics, const std::string& path, int64_t samples, bool json) {
  if (!json) {
    output::line(format("{} on {} samples", path, samples));
    return output::line(metrics.report());
  }
  auto values = Json::object();
  for (const auto& [name, value] : metrics.values()) values[name] = value;
  print_json({{"checkpoint", path}, {"samples", samples}, {"metrics", values}});
}

void refuse_nothing(const Dataset& set) {
  if (set.size() > 0) return;
  throw InputError("no sample is left to evaluate on", "task.eval_fraction",
                   "raise it, or name a file of samples: --set task.eval_file=FILE");
}

int evaluate(const EvalOptions& asked) {
  auto setup = train::join_job(asked.command);
  const auto [path, tree] = train::read_saved(*setup.team, asked.checkpoint);
  if (!train::recall(setup, tree) || !train::load_evaluation(setup)) train::load_data(setup);
  const auto net = train::seeded_model(setup);
  load_module_state_dict(*net, find_state_dict(tree, path), path);
  net->to(setup.team->device());
  if (const auto actor = train::actor_of(setup)) return play(setup, *actor, *net, path, asked.json);
  refuse_nothing(*setup.data.eval);
  const auto metrics = train::evaluate(*setup.team, *net, *setup.task, setup.data, setup.settings);
  if (setup.team->first()) print_metrics(*metrics, path, setup.data.eval->size(), asked.json);
  setup.team->barrier();
  return kDone;
}

}  // namespace

int run_eval(const std::vector<std::string>& args) {
  SavedOptions saved;
  EvalOptions asked;
  Options options(
      "eval", "the metrics of a checkpoint, exact at any number of ranks",
      {"lockstep eval runs/mnist", "lockstep eval configs/mnist.yaml --checkpoint runs/mnist --json",
       "mpirun -n 4 lockstep eval configs/mnist.yaml --checkpoint model.safetensors"});
  saved.add_to(options);
  options.flag("json", asked.json, "one JSON object, for programs");
  if (!options.parse(args)) return kDone;
  asked.checkpoint = saved.checkpoint();
  if (asked.checkpoint.empty()) {
    throw InputError("eval needs a checkpoint", "--checkpoint",
                     "lockstep eval runs/NAME, or pass --checkpoint runs/NAME/checkpoints/step-N.pt");
  }
  asked.command = saved.command("eval");
  return evaluate(asked);
}

}  // namespace lockstep::cli
