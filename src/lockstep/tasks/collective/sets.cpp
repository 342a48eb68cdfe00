#include "lockstep/tasks/collective/sets.h"

#include <chrono>
#include <memory>
#include <optional>

#include "lockstep/comm/connect.h"
#include "lockstep/tasks/task.h"

namespace lockstep::tasks {
namespace {

constexpr std::chrono::hours kNoLimit{24 * 30};

// Loading has no time limit, since files may be large.
void await_all(const Team& team) {
  if (team.world() == 1) return;
  c10d::BarrierOptions options;
  options.timeout = kNoLimit;
  team.group()->barrier(options)->wait();
}

}  // namespace

NodeShare node_share(const Team& team) {
  if (!team.group()) return {};
  const auto& job = team.job();
  // The rank that loads is in no collective, so nothing else would report the death of another rank.
  const std::shared_ptr<launch::StallWatch> deaths =
      comm::watch_stalls(team.group(), "loading the data", kNoLimit);
  deaths->sign();
  return {.local_rank = job.local_rank,
          .local_world = job.local_world,
          .node_rank = job.node_rank,
          .exchange = [&team, deaths](const std::string& text) {
            await_all(team);
            return team.all_gather(text);
          }};
}

}  // namespace lockstep::tasks

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
  const auto share = tasks::node_share(team);
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
