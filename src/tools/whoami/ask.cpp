#include "tools/whoami/ask.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/meet/gather_texts.h"
#include "lockstep/comm/meet/join.h"
#include "lockstep/launch/deadline.h"

namespace lockstep::whoami {
namespace {

constexpr std::string_view kCuda = "cuda:";
constexpr std::chrono::seconds kMeetWithin{10};  // with ranks that are not reached over MPI

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
Answers gather(const launch::Runtime& runtime, Process own, std::string apart,
               const launch::Environment& environment) {
  Answers answers;
  const auto make_report = [&](const std::vector<std::string>& texts) {
    answers.report = report_of(texts, runtime.job(), environment);
    return deviceless(*answers.report);
  };
  if (apart.empty()) {
    try {
      answers.deviceless = comm::ask_rank_zero(runtime, pack(own), make_report, patience_of(runtime));
      return answers;
    } catch (const std::exception& error) {
      if (runtime.has_mpi()) throw;
      apart = first_line(error);
    }
  }
  own.job.warnings.push_back("the other ranks could not be asked, each prints its own lines: " + apart);
  answers.deviceless = make_report({pack(own)});
  return answers;
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

Answers ask_all(launch::Runtime& runtime, const std::string& device) {
  const launch::Environment environment = launch::current_environment();
  const std::string apart = meet(runtime);
  const Process own = own_process(runtime, device, environment);
  launch::GpuIdentity gpu;
  if (own.device.starts_with(kCuda)) gpu = launch::identify_gpu(std::stoi(own.device.substr(kCuda.size())));
  Answers answers = gather(runtime, own, apart, environment);
  answers.met = apart.empty();
  answers.gpu = gpu;
  return answers;
}

void refuse_missing(launch::Runtime& runtime, const Answers& answers) {
  refuse_missing_device(answers.deviceless);
  if (answers.met) comm::refuse_shared_gpus(runtime, {answers.gpu});
  if (answers.report) refuse_missing_ranks(*answers.report);
}

}  // namespace lockstep::whoami
