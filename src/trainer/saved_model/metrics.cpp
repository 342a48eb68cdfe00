// lockstep eval: the metrics of a checkpoint, on any number of ranks.
#include "trainer/saved_model/saved_model.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/checkpoint/state_dict.h"
#include "trainer/setup/saved.h"
#include "trainer/setup/setup.h"
#include "trainer/step/evaluate.h"
#include "trainer/step/feed.h"

namespace lockstep::train {
namespace {

using Json = nlohmann::ordered_json;

// One object, and nothing else there. What a number cannot be in JSON (NaN) is null.
void print_json(const Json& facts) {
  Json json = {{"schema", 1}};
  json.update(facts);
  output::print(base::as_lines(json));
}

int play(const Setup& setup, const Actor& actor, Net& net, const std::string& path, bool json) {
  const auto play = play_episodes(setup, actor, net);
  if (setup.team->first() && json) {
    Json metrics = {{"reward", play.reward}, {"smallest", play.least}, {"largest", play.largest}};
    if (play.goal) metrics.update(Json{{"goal", *play.goal}, {"solved", play.solved()}});
    print_json({{"checkpoint", path}, {"metrics", metrics}});
  } else if (setup.team->first()) {
    output::line("evaluated " + path);
    output::line(report_of(play));
  }
  setup.team->barrier();
  return kDone;
}

void print(const Metrics& metrics, const std::string& path, int64_t samples, bool json) {
  if (!json) {
    output::line(format("{} on {} samples", path, samples));
    return output::line(metrics.report());
  }
  auto values = Json::object();
  for (const auto& [name, value] : metrics.values()) values[name] = value;
  print_json({{"checkpoint", path}, {"samples", samples}, {"metrics", values}});
}

}  // namespace

int print_metrics(const Command& command, const std::string& checkpoint, bool json) {
  auto setup = join_job(command);
  const auto [path, tree] = read_saved(*setup.team, checkpoint);
  if (!recall(setup, tree) || !load_evaluation(setup)) load_data(setup);
  const auto net = seeded_model(setup);
  load_module_state_dict(*net, find_state_dict(tree, path), path);
  net->to(setup.team->device());
  if (const auto actor = actor_of(setup)) return play(setup, *actor, *net, path, json);
  if (setup.data.eval->size() == 0)
    throw InputError("no sample is left for evaluation", "task.eval_fraction",
                     "raise task.eval_fraction, or name a file of samples: --set task.eval_file=FILE");
  const auto metrics = evaluate(*setup.team, *net, *setup.task, setup.data, setup.settings);
  if (setup.team->first()) print(*metrics, path, setup.data.eval->size(), json);
  setup.team->barrier();
  return kDone;
}

}  // namespace lockstep::train
