#include "tools/whoami/process.h"

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/launch/device.h"
#include "lockstep/launch/process/cpus.h"

namespace lockstep::whoami {
namespace {

// A missing device is part of the picture: the table comes first, the error after it.
void take_device(Process& process, const std::string& wanted, const launch::Environment& environment) {
  try {
    const launch::DeviceChoice choice = launch::choose_device(process.job, wanted, environment);
    process.device = choice.name;
    process.job.because["device"] = choice.because;
  } catch (const InputError& error) {
    process.device = "none";
    process.device_error = error.what();
    process.job.because["device"] = error.what();
  }
}

}  // namespace

Process own_process(const launch::Runtime& runtime, const std::string& device,
                    const launch::Environment& environment) {
  Process process{
      .job = runtime.job(), .pid = getpid(), .device = {}, .threads = 0, .cpus = {}, .device_error = {}};
  const launch::ThreadShare share = launch::share_threads(runtime, environment);
  take_device(process, device, environment);  // last: from here on nobody waits but who can name the others
  process.threads = share.threads;
  process.cpus = launch::own_cpus().units;
  process.job.because["threads"] = share.because;
  process.job.warnings.insert(process.job.warnings.end(), share.warnings.begin(), share.warnings.end());
  return process;
}

nlohmann::ordered_json to_json(const Process& process) {
  const Job& job = process.job;
  return {{"rank", job.rank},
          {"world", job.world},
          {"local_rank", job.local_rank},
          {"local_world", job.local_world},
          {"node_rank", job.node_rank},
          {"nodes", job.nodes},
          {"host", job.host},
          {"pid", process.pid},
          {"launcher", job.launcher},
          {"mpi", job.mpi},
          {"scheduler", job.scheduler},
          {"job_id", job.job_id},
          {"device", process.device},
          {"device_error", process.device_error},
          {"threads", process.threads},
          {"cpus", process.cpus},
          {"because", job.because},
          {"warnings", job.warnings}};
}

std::string pack(const Process& process) {
  return base::as_line(to_json(process));
}

Process unpack(const std::string& text) {
  const auto json = nlohmann::ordered_json::parse(text);
  Process process;
  const std::pair<const char*, int Job::*> numbers[] = {{"rank", &Job::rank},
                                                        {"world", &Job::world},
                                                        {"local_rank", &Job::local_rank},
                                                        {"local_world", &Job::local_world},
                                                        {"node_rank", &Job::node_rank},
                                                        {"nodes", &Job::nodes}};
  for (const auto& [name, field] : numbers) json.at(name).get_to(process.job.*field);
  const std::pair<const char*, std::string Job::*> texts[] = {{"host", &Job::host},
                                                              {"launcher", &Job::launcher},
                                                              {"mpi", &Job::mpi},
                                                              {"scheduler", &Job::scheduler},
                                                              {"job_id", &Job::job_id}};
  for (const auto& [name, field] : texts) json.at(name).get_to(process.job.*field);
  json.at("because").get_to(process.job.because);
  json.at("warnings").get_to(process.job.warnings);
  json.at("pid").get_to(process.pid);
  json.at("device").get_to(process.device);
  json.at("device_error").get_to(process.device_error);
  json.at("threads").get_to(process.threads);
  json.at("cpus").get_to(process.cpus);
  return process;
}

}  // namespace lockstep::whoami
