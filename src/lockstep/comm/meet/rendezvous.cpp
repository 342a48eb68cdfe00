#include "lockstep/comm/meet/rendezvous.h"

#include <unistd.h>

#include <cctype>
#include <charconv>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/meet/network.h"
#include "lockstep/launch/identify.h"

namespace lockstep::comm {
namespace {

constexpr size_t kLongestName = 80;

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

// torchrun sets this if its agent already listens: a second server on that port would fail
bool agent_holds_store(const launch::Environment& environment) {
  const std::string text = value(environment, "TORCHELASTIC_USE_AGENT_STORE");
  return text == "True" || text == "true" || text == "1";
}

// A name from a user or a batch system must not be a path.
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

std::string folder_in(const std::string& parent) {
  return format("{}/lockstep-{}/", parent, ::geteuid());
}

// A folder on this machine. Other users cannot enter it, so they cannot open the store in it.
void meet_locally(Rendezvous& plan, const launch::Environment& environment, const std::string& name) {
  plan.how = Meeting::local;
  plan.path = private_path(environment, file_name(name));
}

Rendezvous by_address(const launch::Environment& environment, const Job& job) {
  Rendezvous plan;
  plan.host = value(environment, "MASTER_ADDR");
  plan.port = port_of(value(environment, "MASTER_PORT"));
  plan.prefix = restart_prefix(environment);
  plan.how = Meeting::address;
  plan.because = "MASTER_ADDR and MASTER_PORT are set";
  if (agent_holds_store(environment)) {
    plan.how = Meeting::agent;
    plan.because = "torchrun's agent holds the store";
  } else if (launch::surely_one_node(job) || names_loopback_itself(plan.host)) {
    meet_locally(plan, environment, format("{}-{}", plan.host, plan.port));
  }
  return plan;
}

Rendezvous by_name(const launch::Environment& environment, const Job& job, const std::string& name,
                   const std::string& because) {
  Rendezvous plan;
  plan.because = because;
  if (launch::surely_one_node(job)) {
    meet_locally(plan, environment, name);
    return plan;
  }
  const auto submitted = value(environment, "SLURM_SUBMIT_DIR", value(environment, "PBS_O_WORKDIR", "."));
  plan.how = Meeting::file;
  plan.path = folder_in(value(environment, "LOCKSTEP_RENDEZVOUS_DIR", submitted)) + file_name(name);
  return plan;
}

Rendezvous by_job_step(const launch::Environment& environment, const Job& job) {
  if (job.job_id.empty()) {
    throw InputError(format("{} ranks cannot find each other: no MPI, no MASTER_ADDR, no job id", job.world),
                     "the environment",
                     "start the ranks with mpirun, srun or torchrun, or set MASTER_ADDR and MASTER_PORT")
        .of(Code::not_joined);
  }
  return by_name(environment, job,
                 format("{}-{}-{}-{}", job.scheduler, value(environment, "SLURM_STEP_ID", "0"),
                        value(environment, "SLURM_RESTART_COUNT", "0"), job.job_id),
                 "no MPI and no MASTER_ADDR: a file named after the job step");
}

}  // namespace

Rendezvous plan_rendezvous(const launch::Environment& environment, const Job& job) {
  if (const auto name = value(environment, "LOCKSTEP_MEETING"); !name.empty() && job.launcher == "as_world")
    return by_name(environment, job, name, "LOCKSTEP_MEETING is set");
  const bool address = !value(environment, "MASTER_ADDR").empty();
  const bool port = !value(environment, "MASTER_PORT").empty();
  if (address && port) return by_address(environment, job);
  if (address != port) {
    throw InputError(format("{} is set but {} is not", address ? "MASTER_ADDR" : "MASTER_PORT",
                            address ? "MASTER_PORT" : "MASTER_ADDR"),
                     "the environment", "set both, the same on every rank, or neither");
  }
  return by_job_step(environment, job);
}

std::string private_path(const launch::Environment& environment, const std::string& name) {
  const auto parent = value(environment, "LOCKSTEP_RENDEZVOUS_DIR", value(environment, "TMPDIR", "/tmp"));
  return folder_in(parent) + name + ".store";
}

std::string random_word() {
  std::random_device device;
  return format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

}  // namespace lockstep::comm
