#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "base/error.h"
#include "base/format.h"
#include "cli/options.h"
#include "cli/whoami_report.h"
#include "comm/gather_texts.h"
#include "launch/cpus.h"
#include "launch/deadline.h"
#include "launch/device.h"
#include "launch/runtime.h"

namespace lockstep::cli {
namespace {

constexpr std::chrono::seconds kPatience{10};  // with ranks that are not reached over MPI

// A missing device is part of the picture: the table comes first, the error after it.
void take_device(Seat& seat, const std::string& wanted, const Environment& environment) {
  try {
    const DeviceChoice choice = choose_device(seat.job, wanted, environment);
    seat.device = choice.name;
    seat.job.because["device"] = choice.because;
  } catch (const InputError& error) {
    seat.device = "none";
    seat.device_error = error.what();
    seat.job.because["device"] = error.what();
  }
}

Seat own_seat(const Runtime& runtime, const std::string& device, const Environment& environment) {
  Seat seat{
      .job = runtime.job(), .pid = getpid(), .device = {}, .threads = 0, .cpus = {}, .device_error = {}};
  take_device(seat, device, environment);
  const ThreadShare share = share_threads(runtime, environment);
  seat.threads = share.threads;
  seat.cpus = own_cpus().units;
  seat.job.because["threads"] = share.because;
  seat.job.warnings.insert(seat.job.warnings.end(), share.warnings.begin(), share.warnings.end());
  return seat;
}

// the scheduler is asked by one process a job
std::string end_of(const Job& job, const Environment& environment) {
  if (job.rank != 0) return "";
  const auto end = job_deadline(job, environment);
  if (!end) return "";
  const std::time_t when = std::chrono::system_clock::to_time_t(*end);
  std::tm parts{};
  gmtime_r(&when, &parts);
  char text[32] = {};
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// Without MPI the others are reached over the network, which may be what is broken: then each speaks for
// itself.
std::vector<std::string> ask_all(const Runtime& runtime, Seat& own) {
  try {
    return comm::gather_texts(runtime, pack(own), kPatience);
  } catch (const std::exception& error) {
    if (runtime.has_mpi()) throw;
    const std::string what = error.what();
    own.job.warnings.push_back("the other ranks could not be asked, each prints its own lines: " +
                               what.substr(0, what.find('\n')));
    return {pack(own)};
  }
}

Report gather(const Runtime& runtime, Seat own, const Environment& environment) {
  Report report;
  for (const auto& text : ask_all(runtime, own)) report.seats.push_back(unpack(text));
  std::sort(report.seats.begin(), report.seats.end(),
            [](const Seat& a, const Seat& b) { return a.job.rank < b.job.rank; });
  report.ends = end_of(runtime.job(), environment);
  return report;
}

void refuse_missing_devices(const Report& report) {
  for (const Seat& seat : report.seats) {
    if (seat.device_error.empty()) continue;
    throw InputError(seat.device_error,
                     format("rank {} of {} on host {}", seat.job.rank, seat.job.world, seat.job.host),
                     "ask the scheduler for as many GPUs a node as ranks, or set launch.device to cpu");
  }
}

}  // namespace

int run_whoami(const std::vector<std::string>& args) {
  bool json = false;
  std::string launcher = "auto", device = "auto";
  Options options("whoami", "rank, world, node and device of every process, and why",
                  {"lockstep whoami", "mpirun -n 4 lockstep whoami", "srun lockstep whoami --json"});
  options.flag("json", json, "for programs: the schema is in docs/launchers.md");
  options.add("launcher", launcher, "NAME", "what started the ranks (default auto; none = alone)");
  options.add("device", device, "NAME", "auto, cpu or cuda (default auto)");
  if (!options.parse(args)) return kDone;

  const Environment environment = current_environment();
  const Runtime runtime(launcher);
  const Report report = gather(runtime, own_seat(runtime, device, environment), environment);
  if (runtime.job().rank == 0 || !report.complete()) {
    const std::string text = json ? as_json(report) : as_text(report);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  refuse_missing_devices(report);
  return kDone;
}

}  // namespace lockstep::cli
