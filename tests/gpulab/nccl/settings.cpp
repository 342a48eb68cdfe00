#include "nccl/settings.h"

#include <unistd.h>

#include <cstdlib>
#include <initializer_list>

namespace lab::nccl {
namespace {

std::string text_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? text : "";
}

bool is_on(const char* variable) {
  const std::string text = text_of(variable);
  return !text.empty() && text != "0";
}

std::string first_of(std::initializer_list<const char*> variables) {
  for (const char* variable : variables)
    if (const auto text = text_of(variable); !text.empty()) return text;
  return "";
}

long rank_in_the_job() {
  const auto rank = first_of({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "RANK", "SLURM_PROCID"});
  return std::strtol(rank.c_str(), nullptr, 10);
}

bool is_the_failing_rank() {
  return std::strtol(text_of("LAB_FAIL_RANK").c_str(), nullptr, 10) == rank_in_the_job();
}

Fault fault_named(const std::string& name) {
  if (name == "hang") return Fault::hang;
  if (name == "error") return Fault::error;
  if (name == "async") return Fault::async;
  return name == "kill" ? Fault::kill : Fault::none;
}

void read_fault(Settings& made) {
  const std::string text = text_of("LAB_NCCL_FAULT");
  const auto colon = text.find(':');
  if (colon == std::string::npos || !is_the_failing_rank()) return;
  made.fault = fault_named(text.substr(0, colon));
  made.fault_at = std::strtol(text.c_str() + colon + 1, nullptr, 10);
}

Death read_death() {
  const std::string text = text_of("LAB_NCCL_DEATH");
  if (text == "error") return Death::error;
  return text == "network" ? Death::network : Death::hang;
}

Settings read() {
  Settings made;
  read_fault(made);
  made.death = read_death();
  made.abort_hangs =
      text_of("LAB_NCCL_ABORT") == "hang" && (text_of("LAB_FAIL_RANK").empty() || is_the_failing_rank());
  made.mismatch_is_error = text_of("LAB_NCCL_MISMATCH") == "error";
  made.devices_may_be_shared = is_on("LAB_ALLOW_SHARED") || is_on("NCCL_MULTI_RANK_GPU_ENABLE");
  made.sends_wait_for_receipt = is_on("LAB_NCCL_RENDEZVOUS");
  made.trace = is_on("LAB_TRACE_NCCL");
  const std::string debug = text_of("NCCL_DEBUG");
  made.warns = debug == "WARN" || debug == "INFO" || debug == "TRACE";
  return made;
}

}  // namespace

const Settings& settings() {
  static const Settings all = read();
  return all;
}

std::string host_identity() {
  const auto chosen = first_of({"NCCL_HOSTID", "LAB_NODE"});
  if (!chosen.empty()) return chosen;
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace lab::nccl
