#include "trainer/provoke/provoke.h"

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "trainer/config/past_config.h"
#include "trainer/provoke/injected_faults.h"

namespace lockstep::train {
namespace {

const InjectedFault* injected_by(const Settings& settings) {
  const auto& rows = injected_faults();
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const auto& row) { return row.name == settings.train.provoke; });
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace

Provocation::Provocation(const Settings& settings, const Team& team)
    : settings_(settings), team_(team), injected_(injected_by(settings)) {
  if (!injected_) return;
  if (team.world() >= injected_->ranks) return;
  throw InputError(
      format("train.provoke: {} takes {} ranks or more that share the data, not {}", injected_->name,
             injected_->ranks, team.world()),
      "train.provoke",
      format("start them: mpirun -n {}, with parallel.tensor and parallel.pipeline at 1", injected_->ranks));
}

void Provocation::prepare(config::Loaded& loaded) {
  const auto* fault = injected_by(loaded.settings);
  if (!fault) return;
  log::warning(format("train.provoke: {} is injected: {}", fault->name, fault->what));
  auto& name = loaded.settings.run.name;
  if (!name.ends_with("-" + fault->name)) name += "-" + fault->name;
  if (fault->prepare) fault->prepare(loaded);
}

std::string Provocation::resume(const Settings& settings, const std::string& asked) {
  if (!injected_by(settings) || asked.empty()) return asked;
  if (asked == "auto") return "";
  throw InputError("a fault is injected into a new run alone", "--resume",
                   "leave out --resume, or --provoke");
}

void Provocation::refuse_folder(const std::string& folder) {
  const auto file = folder + "/config.yaml";
  if (!std::filesystem::exists(file)) return;
  const auto past = config::read_past_config(base::read_small_file(file, 1 << 20, "the run's config"), file);
  if (!injected_by(past.settings)) return;
  throw InputError(format("{} was injected there: it cannot be resumed", past.settings.train.provoke), folder,
                   "start a new run");
}

std::shared_ptr<Net> Provocation::change(const Settings& settings, std::shared_ptr<Net> net) {
  const auto* fault = injected_by(settings);
  return fault && fault->change ? fault->change(std::move(net)) : net;
}

void Provocation::after_step(int64_t step) const {
  if (injected_ && injected_->after_step && step == kMoment) injected_->after_step(team_, settings_);
}

double Provocation::shown_loss(double mean, const LossTrace& losses) const {
  return injected_ && injected_->shown_loss ? injected_->shown_loss(team_, mean, losses) : mean;
}

}  // namespace lockstep::train
