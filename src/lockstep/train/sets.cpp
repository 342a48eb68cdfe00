#include "lockstep/train/sets.h"

#include <chrono>
#include <exception>
#include <optional>

#include "lockstep/comm/connect.h"
#include "lockstep/launch/process/alarm.h"
#include "lockstep/tasks/task.h"

namespace lockstep::train {
namespace {

// Loading has no time limit, since files may be large. The death of a rank is still an error.
void await_all(const Team& team) {
  if (team.world() == 1) return;
  const auto group = team.group();
  c10d::BarrierOptions options;
  options.timeout = std::chrono::hours(24 * 30);
  std::optional<launch::StallWatch> deaths;  // NCCL itself would notice one after that timeout only
  if (team.device().is_cuda()) {
    deaths.emplace(launch::StallWatch::Limits{options.timeout, [group] { return comm::misses_rank(group); }},
                   [group, limit = options.timeout] {
                     std::rethrow_exception(comm::judge_stall(group, "loading the data", limit));
                   });
    deaths->sign();
  }
  group->barrier(options)->wait();
}

}  // namespace

NodeShare node_share(const Team& team) {
  if (!team.group()) return {};
  const auto& job = team.job();
  return {.local_rank = job.local_rank,
          .local_world = job.local_world,
          .node_rank = job.node_rank,
          .exchange = [&team](const std::string& text) {
            await_all(team);
            return team.all_gather(text);
          }};
}

}  // namespace lockstep::train

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
