#include "tools/submit/submission.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "tools/cluster/hand_in.h"
#include "tools/submit/interrupts.h"

namespace lockstep::submit {
namespace {

void say_unheard(const cluster::SchedulerCommand& command) {
  std::vector<std::string> names;
  for (const auto& name : command.without) {
    if (name.starts_with("SBATCH_") || name.starts_with("PBS_")) names.push_back(name);
  }
  if (!names.empty())
    log::warning(format("set here, and not heard for this job: {} (docs/cli.md)", base::join(names, ", ")));
}

void add_tasks(Submission& submission, const Plan& plan, const std::string& id) {
  const auto record = file_of(plan, 1, ".record").string();
  for (size_t i = 0; i < plan.request.sweep.size(); ++i) {
    const auto task = cluster::task_id(plan.site.scheduler, id, i);
    submission.jobs.push_back({task, format("{}.{}", record, i), base::join(plan.request.sweep[i], " ")});
  }
}

// A script is handed in whole, and its id heard, or the job would run and nobody could name it.
cluster::Submitted submit_link(const Plan& plan, int64_t link, const Submission& submission) {
  const auto path = file_of(plan, link, ".sh").string();
  const auto script = script_of(plan, link, submission.jobs.empty() ? "" : submission.jobs.back().id);
  const auto command = cluster::submit_command(plan.site, path, script, submission.scheduler.cluster);
  if (link == 1) say_unheard(command);
  base::replace_file(path, script);
  const Interrupts::Answered answered(
      "hearing the job's id first; Ctrl-C again leaves at once, without it\n");
  auto submitted = cluster::submit(command);
  output::line(submitted.id);
  if (!submitted.said.empty()) log::info(submitted.said);
  return submitted;
}

// Those that are there already are said, where one is refused or somebody interrupts.
void say_missing_links(const Submission& submission, const Plan& plan, int64_t link) {
  if (!submission.jobs.empty())
    log::warning(format("link {} of {} was not submitted; those before it are:\n{}", link, plan.links,
                        how_to_follow(submission)));
}

}  // namespace

std::string how_to_follow(const Submission& submission) {
  const auto& scheduler = submission.scheduler;
  const auto& first = submission.jobs.front().id;
  std::vector<std::string> cancel;
  for (const auto& job : submission.jobs) cancel.push_back(cluster::how_to_cancel(scheduler, job.id));
  const auto all = submission.sweep ? cluster::array_of(first) : first;
  return format(
      "log: {}; look: {}; results: lockstep runs\nstop: lockstep stop RUN_FOLDER (with a checkpoint), or {}",
      cluster::log_of(scheduler.name, submission.name, submission.sweep ? first : all),
      cluster::how_to_look(scheduler, all),
      submission.sweep ? cluster::how_to_cancel(scheduler, all) : base::join(cancel, "; "));
}

void make_folder(const Plan& plan) {
  const auto folder = plan.stem.parent_path();
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed)
    throw InputError("the folder for the job's files cannot be made: " + failed.message(), folder.string(),
                     "choose another run.dir");
}

Submission submit_all(const Plan& plan) {
  Submission submission{{plan.site.scheduler}, plan.request.name, {}, !plan.request.sweep.empty()};
  for (int64_t link = 1; link <= plan.links; ++link) try {
      if (Interrupts::came()) {
        log::warning(format("interrupted: {} of {} jobs were submitted", link - 1, plan.links));
        break;
      }
      const auto submitted = submit_link(plan, link, submission);
      submission.scheduler.cluster = submitted.cluster;
      submission.sweep ? add_tasks(submission, plan, submitted.id)
                       : submission.jobs.push_back({submitted.id, file_of(plan, link, ".record")});
    } catch (const Error&) {
      say_missing_links(submission, plan, link);
      throw;
    }
  return submission;
}

}  // namespace lockstep::submit
