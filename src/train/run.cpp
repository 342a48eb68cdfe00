#include "train/run.h"

#include <cstdlib>
#include <sstream>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/whole_file.h"
#include "launch/deadline.h"
#include "train/console.h"
#include "train/run_folder.h"
#include "train/saved.h"
#include "train/stop_signal.h"
#include "train/trainer.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

// The folder as every rank knows it; the lock is rank 0's.
struct Place {
  std::optional<RunFolder> folder;
  std::string path;
  bool goes_on = false;
  int64_t attempt = 1;
};

int64_t next_attempt(const fs::path& folder) {
  try {
    return read_status(folder).attempt + 1;
  } catch (const std::exception&) {
    return 2;
  }
}

// A job script asks `lockstep status` what became of the run, and for that it has to know which run it was.
void tell_job_script(const fs::path& folder) {
  const char* file = std::getenv("LOCKSTEP_RUN_FILE");
  if (file && *file) replace_file(file, fs::absolute(folder).string() + "\n");
}

// What --resume names, as rank 0 sees it, found before a long load: "" a new run, "auto", or a path.
struct Resume {
  std::string folder;         // "auto" too
  std::optional<Saved> file;  // a checkpoint to start from
};

Resume find_resume(const Team& team, const std::string& asked) {
  if (asked.empty() || asked == "auto") return {asked, {}};
  const auto folder = team.from_first([&] {
    auto path = find_saved(asked);
    if (!fs::is_directory(path)) return std::string();
    check_run_folder(path);
    return path;
  });
  if (!folder.empty()) return {folder, {}};
  return {"", read_saved(team, asked)};
}

Place open_place(const Setup& setup, const std::string& resume) {
  Place place;
  const auto text = setup.team->from_first([&] {
    place.folder = open_run_folder(setup.settings.run, setup.config, resume);
    for (const auto& note : place.folder->notes) log::info(note);
    const auto& path = place.folder->path;
    tell_job_script(path);
    const bool goes_on = place.folder->goes_on;
    return format("{:d} {} {}", goes_on, goes_on ? next_attempt(path) : 1, path.string());
  });
  std::istringstream words(text);
  words >> place.goes_on >> place.attempt;
  std::getline(words.ignore(), place.path, '\0');  // a path is any bytes
  return place;
}

// The newest whole checkpoint of the folder; an earlier attempt that came to none starts anew.
void go_on(Trainer& trainer, const Setup& setup, const std::string& folder) {
  const auto saved = newest_saved(*setup.team, folder);
  if (!saved) {
    log::info("no checkpoint there yet: starting from the first step");
    return;
  }
  trainer.restore(saved->tree, saved->path);
  trainer.found_in(saved->path);
  log::info("going on after step " + std::to_string(trainer.state().step) + ", from " + saved->path);
}

void start_from(Trainer& trainer, const Saved& saved) {
  trainer.restore(saved.tree, saved.path);
  trainer.forget_metrics();
  log::info("starting after step " + std::to_string(trainer.state().step) + " of " + saved.path +
            ", in a new folder");
}

void say_start(const Setup& setup, const Trainer& trainer, const Place& place) {
  const auto& job = setup.team->job();
  log::info(format("{}: {} on {} rank{} ({}, {}, {} thread{} each), {} steps an epoch, in {}",
                   setup.settings.run.name, setup.settings.task.name, setup.team->world(),
                   setup.team->world() == 1 ? "" : "s", setup.device.name,
                   setup.team->group() ? setup.settings.launch.backend : "no group", setup.threads,
                   setup.threads == 1 ? "" : "s", trainer.rounds().steps_per_epoch, place.path));
  if (job.scheduler != "none") log::info(format("{} job {}", job.scheduler, job.job_id));
  const auto& train = setup.settings.train;
  if (train.precision != "fp32" || train.layout != "nchw") {
    log::info(
        format("precision {}, layout {}: bits equal Python's with the same two, not the plain program's",
               train.precision, train.layout));
  }
}

// A failure reaches the folder before it reaches the screen.
Ending run_and_tell(Trainer& trainer) {
  try {
    const auto ending = trainer.run();
    trainer.tell(ending.state, ending.reason);
    return ending;
  } catch (const std::exception& error) {
    trainer.tell(RunState::failed, describe(error));
    throw;
  }
}

void say_ending(const Ending& ending, const Place& place) {
  if (ending.state == RunState::stopped_early) {
    log::info("stopped early (" + ending.reason + "), the checkpoint is complete: go on with --resume auto");
  } else if (ending.reason != "epochs") {
    log::info("ended by " + ending.reason);
  }
  log::info("everything is in " + place.path);
}

}  // namespace

int train(const Command& command, const std::string& resume) {
  const EarlySignals signals;  // a warning that comes while we load is obeyed after a step
  auto setup = join_job(command);
  auto from = find_resume(*setup.team, resume);
  load_data(setup);
  Trainer trainer(setup);
  if (const auto saved = std::exchange(from.file, {})) start_from(trainer, *saved);
  auto place = open_place(setup, from.folder);
  if (place.goes_on) go_on(trainer, setup, place.path);
  setup.team->together([&] { trainer.write_to(place.path, place.attempt); });
  if (setup.team->first()) trainer.leave_before(job_deadline(setup.team->job(), current_environment()));
  say_start(setup, trainer, place);
  const auto ending = run_and_tell(trainer);
  setup.team->barrier();  // whoever leaves early would take rank 0 along
  say_ending(ending, place);
  return ending.state == RunState::stopped_early ? kStoppedEarly : kDone;
}

int status(const std::string& folder) {
  const auto verdict = judge(folder);
  Console(true).line(verdict.text);
  return verdict.exit_status;
}

}  // namespace lockstep::train
