#pragma once
// What a schedule of the learning rate is made from.

#include <cstdint>
#include <map>
#include <string>

namespace lockstep {

/// The section `schedule` of a config, by Python's parameter names; each schedule reads its own.
struct ScheduleSettings {
  std::string name = "none";  // a row of the table of schedules
  int64_t step_size = 1;
  double gamma = 0.1;
  int64_t T_max = 0;  // 0 = the run's epochs
  double eta_min = 0;
  double max_lr = 0;
  int64_t total_steps = 0;  // 0 = the run's steps
  double pct_start = 0.3;
  std::string anneal_strategy = "cos";
  bool cycle_momentum = true;
  double base_momentum = 0.85;
  double max_momentum = 0.95;
  double div_factor = 25;
  double final_div_factor = 1e4;
  bool three_phase = false;
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  int64_t total_iters = 5;
  int64_t warmup_steps = 0;
  std::string mode = "min";
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  std::string threshold_mode = "rel";
  int64_t cooldown = 0;
  double min_lr = 0;
  double eps = 1e-8;
  std::map<std::string, std::string> options = {};  // for a schedule of the user's own

  bool operator==(const ScheduleSettings&) const = default;
};

}  // namespace lockstep
