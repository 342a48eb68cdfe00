#include "trainer/provoke/provoke.h"

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "trainer/config/past_config.h"
#include "trainer/provoke/troubles.h"

namespace lockstep::train {
namespace {

const Trouble* trouble_of(const Settings& settings) {
  const auto& rows = troubles();
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const auto& row) { return row.name == settings.train.provoke; });
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace

Provocation::Provocation(const Settings& settings, const Team& team)
    : settings_(settings), team_(team), trouble_(trouble_of(settings)) {
  if (!trouble_) return;
  if (team.world() >= trouble_->ranks) return;
  throw InputError(
      format("train.provoke: {} takes {} ranks or more that share the data, not {}", trouble_->name,
             trouble_->ranks, team.world()),
      "train.provoke",
      format("start them: mpirun -n {}, with parallel.tensor and parallel.pipeline at 1", trouble_->ranks));
}

void Provocation::prepare(config::Loaded& loaded) {
  const auto* trouble = trouble_of(loaded.settings);
  if (!trouble) return;
  log::warning(format("train.provoke: {} is made on purpose: {}", trouble->name, trouble->what));
  auto& name = loaded.settings.run.name;
  if (!name.ends_with("-" + trouble->name)) name += "-" + trouble->name;
  if (trouble->prepare) trouble->prepare(loaded);
}

std::string Provocation::resume(const Settings& settings, const std::string& asked) {
  if (!trouble_of(settings) || asked.empty()) return asked;
  if (asked == "auto") return "";
  throw InputError("a run in which a trouble is made on purpose goes on from nothing", "--resume",
                   "leave out --resume, or --provoke");
}

void Provocation::refuse_folder(const std::string& folder) {
  const auto file = folder + "/config.yaml";
  if (!std::filesystem::exists(file)) return;
  const auto past = config::read_past_config(base::read_small_file(file, 1 << 20, "the run's config"), file);
  if (!trouble_of(past.settings)) return;
  throw InputError(
      format("{} was made on purpose there: no run goes on from that", past.settings.train.provoke), folder,
      "start a new run");
}

std::shared_ptr<Net> Provocation::change(const Settings& settings, std::shared_ptr<Net> net) {
  const auto* trouble = trouble_of(settings);
  return trouble && trouble->change ? trouble->change(std::move(net)) : net;
}

void Provocation::after_step(int64_t step) const {
  if (trouble_ && trouble_->after_step && step == kMoment) trouble_->after_step(team_, settings_);
}

double Provocation::shown_loss(double mean, const LossTrace& losses) const {
  return trouble_ && trouble_->shown_loss ? trouble_->shown_loss(team_, mean, losses) : mean;
}

}  // namespace lockstep::train
