#include "tools/bench/dp_vs_ddp.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/launch/identify.h"
#include "tools/bench/dp_vs_ddp_processes.h"
#include "tools/bench/dp_vs_ddp_report.h"
#include "tools/bench/report.h"
#include "trainer/config/config_text.h"
#include "trainer/config/load.h"

namespace lockstep::bench {
namespace {

constexpr double kRounding = 1e-4;  // of a loss, after a few steps

double mean_of(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

void verify(const std::string& way, const DpVsDdpFound& found, const DpVsDdpFound& other) {
  bool alike = found.losses.size() == other.losses.size() && found.batch == other.batch;
  for (size_t i = 0; alike && i < found.losses.size(); ++i) {
    const double scale = std::max(1.0, std::abs(other.losses[i]));
    if (std::abs(found.losses[i] - other.losses[i]) <= kRounding * scale) continue;
    throw Error(
        format("step {}: the loss of '{}' is {}, and DDP's {}", i + 1, way, found.losses[i], other.losses[i]),
        "bench dp-vs-ddp",
        "a model with Dropout or BatchNorm has other numbers in each: take one without; so has an epoch's "
        "last batch where the samples do not divide: --set data.drop_last_batch=true");
  }
  if (!alike) throw Error("'" + way + "' took other steps than DDP", "bench dp-vs-ddp");
}

// A mean of the ranks' weighted means is no weighted mean of all samples.
void check_config(const DpVsDdp& wanted) {
  const auto file = config::read_config_text(wanted.config);
  const auto loaded = config::load_settings(file.text, file.name, wanted.sets, launch::current_environment());
  const auto& task = loaded.settings.task;
  if (!task.weighs_classes()) return;
  throw InputError(
      format("with task.class_weights {} DDP's loss is another than one process's", task.class_weights),
      wanted.config, "compare without them: --set task.class_weights=none");
}

Results measure_runs(const DpVsDdp& wanted) {
  Results results;
  for (int64_t run = 0; run < wanted.repeats; ++run) {
    for (const auto& way : kWays) {
      auto found = run_way(way, wanted);
      results.milliseconds[way].push_back(1e3 * mean_of(found.seconds));
      results.last[way] = std::move(found);
    }
    for (const auto& way : kWays) verify(way, results.last[way], results.last["ddp"]);
  }
  for (const auto& way : kWide) results.last[way] = run_way(way, wanted);
  return results;
}

}  // namespace

void dp_vs_ddp(const DpVsDdp& wanted) {
  check_out(wanted.out);
  check_place(wanted.out);
  check_config(wanted);
  const auto results = measure_runs(wanted);
  const auto facts = format(
      "{}: {} devices, {} samples a step, {} step{}, {} run{} of each way in turn. The losses of {} steps "
      "agree.",
      wanted.config, wanted.devices, results.last.at("ddp").batch, wanted.steps, wanted.steps == 1 ? "" : "s",
      wanted.repeats, wanted.repeats == 1 ? "" : "s", results.last.at("ddp").losses.size());
  output::line(facts);
  output::print("\n" + as_text(results));
  if (wanted.out.empty()) return;
  write_page(wanted.out, results, facts);
  output::line("the plots are in " + wanted.out);
}

}  // namespace lockstep::bench
