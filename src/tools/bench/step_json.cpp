// What `bench step` found, for programs.
#include <nlohmann/json.hpp>

#include "tools/bench/step_report.h"

namespace lockstep::bench {
namespace {

using nlohmann::ordered_json;

ordered_json phases_json(const train::PhaseSeconds& phases) {
  ordered_json json;
  for (size_t i = 0; i < phases.size(); ++i) json[train::name_of(static_cast<train::Phase>(i))] = phases[i];
  return json;
}

ordered_json rank_json(const RankSteps& rank, size_t number) {
  return {{"rank", number},
          {"host", rank.host},
          {"threads", rank.threads},
          {"step", rank.step()},
          {"median", rank.median},
          {"min", rank.least},
          {"max", rank.longest},
          {"phases", phases_json(rank.phases)},
          {"own_work", rank.own_work()},
          {"flop_forward", rank.work.forward},
          {"flop_backward", rank.work.backward},
          {"peak_flops", rank.peak.flops},
          {"peak_bytes", rank.peak.bytes},
          {"optimiser_bytes", rank.update_bytes}};
}

}  // namespace

std::string json_of(const StepFound& found) {
  const auto& training = found.training;
  ordered_json json = {{"schema", 1},
                       {"config", found.asked.command.config},
                       {"program", found.asked.command.program},
                       {"task", training.task},
                       {"model", training.model},
                       {"device", training.device},
                       {"backend", training.backend},
                       {"mode", training.mode},
                       {"precision", training.precision},
                       {"layout", training.layout},
                       {"kernels", training.kernels},
                       {"world", found.ranks.size()},
                       {"nodes", training.nodes},
                       {"warm_up", found.warm_up},
                       {"steps", found.steps},
                       {"samples_a_step", found.samples}};
  train::PhaseSeconds mean{};
  for (size_t i = 0; i < mean.size(); ++i)
    mean[i] = spread_over(found.ranks, [i](const RankSteps& rank) { return rank.phases[i]; }).mean;
  const double step = spread_over(found.ranks, &RankSteps::step).mean;
  json["seconds_a_step"] = step;
  json["samples_per_second"] = found.samples / step;
  json["phases"] = phases_json(mean);
  json["vector_bits"] = vector_bits();
  for (const auto& [part, key, name] : kParts) {
    const auto speed = arithmetic(found.ranks, part);
    json["arithmetic"][key] = {{"flop", speed.a_step}, {"flops", speed.a_second}, {"of_peak", speed.of_peak}};
  }
  const auto memory = update(found.ranks);
  json["optimiser"] = {
      {"bytes", memory.a_step}, {"bytes_a_second", memory.a_second}, {"of_peak", memory.of_peak}};
  json["notes"] = notes_of(found);
  json["ranks"] = ordered_json::array();
  for (size_t i = 0; i < found.ranks.size(); ++i) json["ranks"].push_back(rank_json(found.ranks[i], i));
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::bench
