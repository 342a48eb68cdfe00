#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/launch/declared.h"
#include "lockstep/launch/launchers.h"
#include "lockstep/launch/scheduler.h"
#include "lockstep/launch/variables.h"

namespace lockstep::launch {
namespace {

// Each place in a job: the launcher's word, MPI's fact, the field.
struct Field {
  const char* name;
  std::optional<int> Declared::*word;
  int MpiFacts::*fact;
  int Job::*value;
  const char* source;
};

constexpr Field kFields[] = {
    {"rank", &Declared::rank, &MpiFacts::rank, &Job::rank, "MPI_Comm_rank"},
    {"world", &Declared::world, &MpiFacts::world, &Job::world, "MPI_Comm_size"},
    {"local_rank", &Declared::local_rank, &MpiFacts::local_rank, &Job::local_rank,
     "MPI_Comm_split_type(SHARED)"},
    {"local_world", &Declared::local_world, &MpiFacts::local_world, &Job::local_world,
     "MPI_Comm_split_type(SHARED)"},
    {"node_rank", &Declared::node_rank, &MpiFacts::node_rank, &Job::node_rank,
     "order of the nodes' first ranks in MPI"},
    {"nodes", &Declared::nodes, &MpiFacts::nodes, &Job::nodes, "count of nodes in MPI"},
};

std::string why(const Declared& declared, const std::string& field) {
  const auto found = declared.because.find(field);
  return found == declared.because.end() ? field : found->second;
}

[[noreturn]] void refuse_against_mpi(const Declared& declared, const Field& field, const Launcher& launcher,
                                     const MpiFacts& mpi) {
  const bool lone = mpi.world == 1 && declared.world.value_or(1) > 1;
  const std::string library = mpi.library.empty() ? "the MPI library" : mpi.library;
  throw InputError(
      format("{} says {} is {} ({}), but MPI says {}{}", launcher.name, field.name, *(declared.*field.word),
             why(declared, field.name), mpi.*field.fact,
             lone ? format(": {} processes would each be rank 0 of 1", *declared.world) : ""),
      format("MPI_Init against the environment; the library is {}", library),
      lone ? format("start the ranks with the mpirun that belongs to {}", library)
           : format("unset what an outer allocation left behind ({}), or choose with --launcher ('mpi' "
                    "believes MPI alone)",
                    launcher.world ? format("{}, {}", launcher.rank, launcher.world) : launcher.rank))
      .of(Code::launcher);
}

void cross_check(const Declared& declared, const Launcher& launcher, const MpiFacts& mpi, Job& job) {
  for (const auto& field : kFields) {
    const auto value = declared.*field.word;
    if (!value || *value == mpi.*field.fact) continue;
    // nodes may be numbered in another order than the ranks, and two daemons of a test cluster share a host
    const bool node = field.fact == &MpiFacts::node_rank || field.fact == &MpiFacts::nodes;
    if (!node) refuse_against_mpi(declared, field, launcher, mpi);
    job.warnings.push_back(format("{} says {} is {} ({}); MPI says {}, which holds", launcher.name,
                                  field.name, *value, why(declared, field.name), mpi.*field.fact));
  }
}

void take_facts(Job& job, const MpiFacts& mpi) {
  for (const auto& field : kFields) {
    job.*field.value = mpi.*field.fact;
    job.because[field.name] = field.source;
  }
}

void take_declared(Job& job, const Declared& declared) {
  for (const auto& field : kFields) {
    job.*field.value = (declared.*field.word).value();
    job.because[field.name] = why(declared, field.name);
  }
  job.guessed = declared.guessed;
}

void be_alone(Job& job, const std::string& reason) {
  for (const auto& field : kFields) job.because[field.name] = reason;
}

void take_scheduler(Job& job, const Environment& environment) {
  const auto* scheduler = find_scheduler(environment);
  job.because["scheduler"] = scheduler ? scheduler->job_id : "no batch system's job id is set";
  if (!scheduler) return;
  job.scheduler = scheduler->name;
  job.job_id = text_of(environment, scheduler->job_id);
  job.because["job_id"] = scheduler->job_id;
}

void take_host(Job& job, const Environment& environment, const Surroundings& surroundings) {
  job.host = surroundings.host;
  job.because["host"] = "gethostname";
  for (const char* variable : {"SLURMD_NODENAME", "HOSTNAME"}) {
    if (!job.host.empty() || !is_set(environment, variable)) continue;
    job.host = text_of(environment, variable);
    job.because["host"] = variable;
  }
}

void take_launcher(Job& job, const Environment& environment, const Launcher* row, const std::string& choice) {
  job.launcher = row ? row->name : detect_launcher(environment, choice);
  if (choice != "auto" && !(row && row->beyond_choice)) {
    job.because["launcher"] = "--launcher " + choice;
  } else {
    job.because["launcher"] = row ? std::string(row->announced ? row->announced : row->rank) + " is set"
                                  : "no launcher's variables are set";
  }
}

Declared declared_by(const Launcher& row, const Environment& environment, const Surroundings& surroundings) {
  Declared declared = read_declared(row, environment);
  if (row.name == std::string("jsrun")) read_rank_file(declared, surroundings);
  return declared;
}

void place(Job& job, const Launcher* row, const Environment& environment, const std::optional<MpiFacts>& mpi,
           const Surroundings& surroundings, const std::string& choice) {
  if (!row) {
    if (mpi && choice != "none") {
      job.launcher = "mpi";
      return take_facts(job, *mpi);
    }
    return be_alone(job, "alone: " + job.because["launcher"]);
  }
  Declared declared = declared_by(*row, environment, surroundings);
  if (mpi) {
    cross_check(declared, *row, *mpi, job);
    return take_facts(job, *mpi);
  }
  if (!declared.world) {
    throw InputError(
        format("{} is set, but no variable says how many ranks there are", why(declared, "rank")),
        format("environment, launcher {}", row->name), "only MPI knows: do not run without it here")
        .of(Code::launcher);
  }
  complete(declared, *row, job.guesses);
  job.warnings.insert(job.warnings.end(), job.guesses.begin(), job.guesses.end());
  take_declared(job, declared);
}

void judge_phantom(Job& job, const Phantom& phantom, Phantoms phantoms) {
  if (phantom.what.empty()) return;
  if (phantoms == Phantoms::refuse) {
    const auto batch = job.job_id.empty() ? "" : format("{} job {} on ", job.scheduler, job.job_id);
    throw InputError(phantom.what, batch + "host " + job.host, phantom.hint).of(Code::launcher);
  }
  job.phantom = phantom.what;
  job.phantom_hint = phantom.hint;
}

}  // namespace

void check_environment(const Environment& environment, const std::string& choice) {
  if (const auto* row = find_launcher(environment, choice)) read_declared(*row, environment);
}

Job identify(const Environment& environment, const std::optional<MpiFacts>& mpi, const std::string& choice,
             const Surroundings& surroundings, Phantoms phantoms) {
  Job job;
  const Launcher* row = find_launcher(environment, choice);
  take_launcher(job, environment, row, choice);
  take_scheduler(job, environment);
  take_host(job, environment, surroundings);
  const auto judge = [&] {
    judge_phantom(job, find_phantom(environment, row, mpi.has_value(), surroundings, job.warnings), phantoms);
  };
  // where MPI says "0 of 1", the phantom is the cause and a rank that differs only its symptom
  if (choice != "none" && mpi && mpi->world == 1) judge();
  place(job, row, environment, mpi, surroundings, choice);
  if (choice != "none" && !mpi && job.world == 1) judge();
  if (choice == "auto" && row && !mpi) judge_phantom(job, find_leftover(environment, *row), phantoms);
  return job;
}

}  // namespace lockstep::launch
