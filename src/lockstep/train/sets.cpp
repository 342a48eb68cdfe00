#include "lockstep/train/sets.h"

#include "lockstep/tasks/task.h"
#include "lockstep/train/node_share.h"

namespace lockstep::data {
namespace {

Sets load(const char* task, const std::string& path, const NodeShare& share) {
  TaskSettings settings;
  settings.name = task;
  DataSettings where;
  where.root = path;
  const ModelSettings model;
  const TaskConfig config = {settings, where, model, /*seed=*/0, /*evaluates=*/true};
  auto data = make_task(config)->data(config, share);
  return {Samples(data.train), Samples(data.eval), data.class_names};
}

Sets load_together(const char* task, const std::string& path, const Team& team) {
  const auto share = train::node_share(team);
  std::optional<Sets> sets;
  team.together([&] { sets = load(task, path, share); });
  return *sets;
}

}  // namespace

Sets pima(const std::string& path) {
  return load("pima", path, {});
}
Sets mnist(const std::string& path) {
  return load("mnist", path, {});
}
Sets pima(const std::string& path, const Session& session) {
  return load_together("pima", path, session.team());
}
Sets mnist(const std::string& path, const Session& session) {
  return load_together("mnist", path, session.team());
}

}  // namespace lockstep::data
