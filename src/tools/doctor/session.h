#pragma once
// Rounds in which every rank of the job sends JSON to rank 0, which answers all of them; and what is measured
// in such rounds.

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/launch/process/runtime.h"
#include "tools/doctor/facts.h"

namespace lockstep::doctor {

/// A round failed. Every rank that took part throws it, with the same findings.
struct RoundFailed : std::exception {
  explicit RoundFailed(Findings findings) : findings(std::move(findings)) {}
  Findings findings;
};

class Session {
 public:
  using Json = nlohmann::json;
  /// What rank 0 makes of all ranks' values, which it gets in rank order.
  using Answer = std::function<Json(const std::vector<Json>& values)>;

  /// A round waits no longer than `timeout` for a rank.
  Session(launch::Runtime& runtime, const DoctorSettings& settings, std::chrono::milliseconds timeout)
      : runtime(runtime), settings(settings), timeout_(timeout) {}

  /// Collective: does `work` on this rank and returns rank 0's answer to all ranks' values. If `work` threw
  /// on some ranks, or a rank did not respond, it throws RoundFailed on every rank.
  Json round(const std::function<Json()>& work, const Answer& answer = {});

  const Job& job() const { return runtime.job(); }
  bool is_first_of_node() const { return job().rank == 0 || job().local_rank == 0; }
  /// The ranks that did not take part in a round. No round works after that.
  const std::vector<int>& lost() const { return lost_; }
  bool is_broken() const { return is_broken_; }

  launch::Runtime& runtime;
  const DoctorSettings& settings;
  Cluster cluster = {};           // on rank 0: the facts of all ranks
  std::string gloo_problem = {};  // why no backend over gloo can open

 private:
  Json reply_to(const std::vector<std::string>& texts, const Answer& answer) const;
  Finding missing(const std::exception& error) const;

  std::chrono::milliseconds timeout_;
  std::vector<int> lost_;
  bool is_broken_ = false;
};

/// What the ranks measure together. Every rank calls each of these in the table's order and adds its
/// findings. Only rank 0's are printed.
struct Measurement {
  const char* name;
  void (*run)(Session& session, Findings& findings);
};

void measure_deadline(Session& session, Findings& findings);
void measure_interfaces(Session& session, Findings& findings);
void measure_reach(Session& session, Findings& findings);
void measure_clocks(Session& session, Findings& findings);
void measure_folders(Session& session, Findings& findings);
void measure_shared(Session& session, Findings& findings);
void measure_gloo(Session& session, Findings& findings);
void measure_mpi(Session& session, Findings& findings);
void measure_nccl(Session& session, Findings& findings);

inline constexpr Measurement kMeasurements[] = {
    {"deadline", measure_deadline}, {"interfaces", measure_interfaces},
    {"reach", measure_reach},       {"clocks", measure_clocks},
    {"folders", measure_folders},   {"shared", measure_shared},
    {"gloo", measure_gloo},         {"mpi", measure_mpi},
    {"nccl", measure_nccl},
};

/// "12 us", "4.5 ms"
std::string time_text(double seconds);

/// Removes the doctor's own files in the run folder: for a process that is about to end.
void remove_probes();

}  // namespace lockstep::doctor
