// lockstep whoami: rank, world, node and device of every process, and why.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/meet/gather_texts.h"
#include "lockstep/comm/meet/join.h"
#include "lockstep/launch/deadline.h"
#include "lockstep/launch/device.h"
#include "lockstep/launch/process/cpus.h"
#include "lockstep/launch/process/runtime.h"
#include "trainer/cli/options.h"
#include "trainer/cli/whoami_report.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kCuda = "cuda:";
constexpr std::chrono::seconds kLeave{60};
constexpr std::chrono::seconds kMeetWithin{10};  // with ranks that are not reached over MPI

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

// the scheduler is asked by one process a job
std::string deadline_text(const Job& job, const launch::Environment& environment) {
  if (job.rank != 0) return "";
  const auto end = launch::job_deadline(job, environment);
  if (!end) return "";
  const std::time_t when = std::chrono::system_clock::to_time_t(*end);
  std::tm parts{};
  gmtime_r(&when, &parts);
  char text[32] = {};
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Report report_of(const std::vector<std::string>& texts, const Job& job,
                 const launch::Environment& environment) {
  Report report;
  for (const auto& text : texts) report.processes.push_back(unpack(text));
  std::sort(report.processes.begin(), report.processes.end(),
            [](const Process& a, const Process& b) { return a.job.rank < b.job.rank; });
  report.ends = deadline_text(job, environment);
  return report;
}

// The first process without the device that was asked for, packed; "" where all have theirs.
std::string deviceless(const Report& report) {
  for (const Process& process : report.processes) {
    if (!process.device_error.empty()) return pack(process);
  }
  return "";
}

struct Heard {
  std::optional<Report> report;  // on rank 0, and on everybody who could not be heard
  std::string deviceless;
};

std::string first_line(const std::exception& error) {
  const std::string what = error.what();
  return what.substr(0, what.find('\n'));
}

// Over MPI they have all come to MPI_Init already.
std::chrono::milliseconds patience_of(const launch::Runtime& runtime) {
  return runtime.has_mpi() ? runtime.join_timeout() : kMeetWithin;
}

// Why the others cannot be asked; empty where they can. Without MPI they are reached over the network, which
// may be what is broken: then each speaks for itself.
std::string meet(launch::Runtime& runtime) {
  try {
    comm::join_ranks(runtime, patience_of(runtime));
    return "";
  } catch (const std::exception& error) {
    if (runtime.has_mpi()) throw;
    return first_line(error);
  }
}

// Only rank 0 reads all the others' lines.
Heard gather(const launch::Runtime& runtime, Process own, std::string apart,
             const launch::Environment& environment) {
  Heard heard;
  const auto make_report = [&](const std::vector<std::string>& texts) {
    heard.report = report_of(texts, runtime.job(), environment);
    return deviceless(*heard.report);
  };
  if (apart.empty()) {
    try {
      heard.deviceless = comm::ask_rank_zero(runtime, pack(own), make_report, patience_of(runtime));
      return heard;
    } catch (const std::exception& error) {
      if (runtime.has_mpi()) throw;
      apart = first_line(error);
    }
  }
  own.job.warnings.push_back("the other ranks could not be asked, each prints its own lines: " + apart);
  heard.deviceless = make_report({pack(own)});
  return heard;
}

void refuse_missing_device(const std::string& packed) {
  if (packed.empty()) return;
  const Process process = unpack(packed);
  throw InputError(process.device_error,
                   format("rank {} of {} on host {}", process.job.rank, process.job.world, process.job.host),
                   "ask the scheduler for as many GPUs a node as ranks, or set launch.device to cpu");
}

void refuse_missing_ranks(const Report& report) {
  if (report.complete()) return;
  const Job& job = report.processes.front().job;
  throw Error(format("{} of {} ranks answered", report.processes.size(), job.world), "host " + job.host,
              "start the ranks that are missing at about the same time, and see that they reach MASTER_ADDR");
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

  const launch::Environment environment = launch::current_environment();
  launch::Runtime runtime(launcher, {.leave_timeout = kLeave});
  const std::string apart = meet(runtime);
  const Process own = own_process(runtime, device, environment);
  const auto gpu = own.device.starts_with(kCuda)
                       ? launch::identify_gpu(std::stoi(own.device.substr(kCuda.size())))
                       : launch::GpuIdentity{};
  const Heard heard = gather(runtime, own, apart, environment);
  if (heard.report) {
    const std::string text = json ? as_json(*heard.report) : as_text(*heard.report);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  refuse_missing_device(heard.deviceless);
  if (apart.empty()) comm::refuse_shared_gpus(runtime, {gpu});
  if (heard.report) refuse_missing_ranks(*heard.report);
  return kDone;
}

}  // namespace lockstep::cli
