#include "launch/runtime.h"

#include <unistd.h>

#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "launch/mpi.h"
#include "launch/variables.h"

namespace lockstep {
namespace {

std::chrono::milliseconds join_timeout(const Environment& environment, const RuntimeOptions& options) {
  const auto seconds = launch::number_of(environment, "LOCKSTEP_JOIN_TIMEOUT");
  return seconds ? std::chrono::seconds(*seconds) : options.join_timeout;
}

}  // namespace

Runtime::Runtime(const std::string& launcher, const RuntimeOptions& options)
    : exceptions_at_birth_(std::uncaught_exceptions()) {
  const Environment environment = current_environment();
  check_environment(environment, launcher);
  std::optional<MpiFacts> facts;
  if (wants_mpi(environment, launcher)) {
    mpi_ = std::make_unique<MpiSession>(join_timeout(environment, options));
    facts = mpi_->facts();
  }
  job_ = identify(environment, facts, launcher, current_surroundings(environment), options.phantoms);
  log::set_rank(job_.rank, job_.world);
}

Runtime::~Runtime() {
  if (!mpi_ || std::uncaught_exceptions() > exceptions_at_birth_) return;
  try {
    mpi_->finish();
  } catch (const std::exception& error) {
    log::error(describe(error));
    abort(kFailed);
  }
}

const MpiSession& Runtime::mpi() const {
  if (!mpi_) {
    throw Error("MPI is not in use in this job", "launcher " + job_.launcher,
                "start the ranks with mpirun or srun --mpi=pmix");
  }
  return *mpi_;
}

std::string Runtime::broadcast(const std::string& text) const {
  return mpi_ ? mpi_->broadcast(text) : text;
}

std::vector<std::string> Runtime::all_gather(const std::string& text) const {
  return mpi_ ? mpi_->all_gather(text) : std::vector<std::string>{text};
}

std::vector<std::string> Runtime::gather(const std::string& text) const {
  return mpi_ ? mpi_->gather(text) : std::vector<std::string>{text};
}

void Runtime::barrier() const {
  if (mpi_) mpi_->barrier();
}

void Runtime::abort(int status) const {
  if (mpi_) MPI_Abort(MPI_COMM_WORLD, status);
  _exit(status);
}

}  // namespace lockstep
