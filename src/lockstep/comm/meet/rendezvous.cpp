#include "lockstep/comm/meet/rendezvous.h"

#include <unistd.h>

#include <cctype>
#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/launch/declared.h"

namespace lockstep::comm {
namespace {

constexpr size_t kLongestName = 200;

std::string value(const launch::Environment& environment, const std::string& name,
                  const std::string& otherwise = "") {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? otherwise : found->second;
}

std::uint16_t port_of(const std::string& text) {
  int port = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (code != std::errc() || end != text.data() + text.size() || port < 1 || port > 65535) {
    throw InputError(format("MASTER_PORT is '{}', which is not a port", text), "the environment",
                     "set MASTER_PORT to a number from 1 to 65535, the same on every rank");
  }
  return static_cast<std::uint16_t>(port);
}

// torchrun sets this where its agent already listens: a second server on that port would fail
bool agent_holds_store(const launch::Environment& environment) {
  const std::string text = value(environment, "TORCHELASTIC_USE_AGENT_STORE");
  return text == "True" || text == "true" || text == "1";
}

// What a person or a batch system puts into a name must not lead elsewhere.
std::string file_name(std::string name) {
  for (char& c : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
    if (!plain) c = '_';
  }
  return name.substr(0, kLongestName);
}

std::string restart_prefix(const launch::Environment& environment) {
  return format("lockstep/{}/{}", value(environment, "TORCHELASTIC_RUN_ID", "job"),
                value(environment, "TORCHELASTIC_RESTART_COUNT", "0"));
}

Rendezvous over_tcp(const launch::Environment& environment, const Job& job) {
  Rendezvous plan;
  const bool agent = agent_holds_store(environment);
  plan.agent = agent;
  plan.how = agent || job.rank != 0 ? Meeting::tcp_client : Meeting::tcp_host;
  plan.port = port_of(value(environment, "MASTER_PORT"));
  // where every rank was told that there is one node, nobody else needs to reach it, whatever MASTER_ADDR
  // says
  plan.host = !agent && launch::surely_one_node(job) ? "127.0.0.1" : value(environment, "MASTER_ADDR");
  plan.prefix = restart_prefix(environment);
  plan.because = agent ? "torchrun's agent holds the store" : "MASTER_ADDR and MASTER_PORT are set";
  return plan;
}

std::string shared_folder(const launch::Environment& environment, const Job& job) {
  std::string own = value(environment, "LOCKSTEP_RENDEZVOUS_DIR");
  if (!own.empty()) return own;
  if (launch::surely_one_node(job)) return value(environment, "TMPDIR", "/tmp");
  return value(environment, "SLURM_SUBMIT_DIR", value(environment, "PBS_O_WORKDIR", "."));
}

Rendezvous in_file(const launch::Environment& environment, const Job& job, const std::string& name,
                   const std::string& because) {
  Rendezvous plan;
  plan.how = Meeting::file;
  plan.one_node = launch::surely_one_node(job);
  plan.path = format("{}/lockstep-{}/{}", shared_folder(environment, job), ::geteuid(), file_name(name));
  plan.because = because;
  return plan;
}

Rendezvous over_file(const launch::Environment& environment, const Job& job) {
  if (job.job_id.empty()) {
    throw InputError(format("{} ranks have no way to meet: no MPI, no MASTER_ADDR, no job id", job.world),
                     "the environment",
                     "start the ranks with mpirun, srun or torchrun, or set MASTER_ADDR and MASTER_PORT")
        .of(Code::not_joined);
  }
  return in_file(environment, job,
                 format("{}-{}-{}-{}", job.scheduler, value(environment, "SLURM_STEP_ID", "0"),
                        value(environment, "SLURM_RESTART_COUNT", "0"), job.job_id),
                 "no MPI and no MASTER_ADDR: a file named after the job step");
}

Rendezvous alone() {
  Rendezvous plan;
  plan.because = "one rank";
  return plan;
}

Rendezvous over_mpi(const Job& job) {
  Rendezvous plan;
  plan.how = job.nodes == 1 ? Meeting::shared_memory : Meeting::tcp_over_mpi;
  plan.because = "MPI carries the addresses";
  return plan;
}

}  // namespace

Rendezvous plan_rendezvous(const launch::Environment& environment, const Job& job, bool has_mpi) {
  if (job.world == 1) return alone();
  if (has_mpi) return over_mpi(job);
  if (const auto name = value(environment, "LOCKSTEP_MEETING"); !name.empty() && job.launcher == "as_world")
    return in_file(environment, job, name, "LOCKSTEP_MEETING is set");
  const bool address = !value(environment, "MASTER_ADDR").empty();
  const bool port = !value(environment, "MASTER_PORT").empty();
  if (address && port) return over_tcp(environment, job);
  if (address != port) {
    throw InputError(format("{} is set but {} is not", address ? "MASTER_ADDR" : "MASTER_PORT",
                            address ? "MASTER_PORT" : "MASTER_ADDR"),
                     "the environment", "set both, the same on every rank, or neither");
  }
  return over_file(environment, job);
}

}  // namespace lockstep::comm
