#include "lockstep/launch/process/runtime.h"

#include <unistd.h>

#include <exception>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/mpi.h"
#include "lockstep/launch/process/report.h"
#include "lockstep/launch/variables.h"

namespace lockstep::launch {

std::vector<std::string> TextExchange::all_gather(const std::string& text) {
  return base::unpack_texts(broadcast(base::pack_texts(gather(text))));
}

void log_warnings(const Runtime& runtime, const std::vector<std::string>& more) {
  std::vector<std::string> own = runtime.job().warnings;
  own.insert(own.end(), more.begin(), more.end());
  const auto texts = runtime.gather(base::join(own, "\n"));
  if (runtime.job().rank != 0) return;
  Grouped groups;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    std::istringstream lines(texts[rank]);
    for (std::string line; std::getline(lines, line);) add(groups, line, static_cast<int>(rank));
  }
  for (const auto& [text, ranks] : groups) log::warning(with_ranks(text, ranks, texts.size()));
}

namespace {

std::chrono::milliseconds seconds_in(const Environment& environment, const char* name,
                                     std::chrono::milliseconds otherwise) {
  const auto seconds = number_of(environment, name);
  return seconds ? std::chrono::seconds(*seconds) : otherwise;
}

}  // namespace

Runtime::Runtime(const std::string& launcher, const RuntimeOptions& options)
    : options_(options), exceptions_at_start_(std::uncaught_exceptions()) {
  identify_as(launcher);
}

Runtime::Runtime(Job job) : job_(std::move(job)), exceptions_at_start_(std::uncaught_exceptions()) {}

void Runtime::identify_as(const std::string& launcher) {
  const Environment environment = current_environment();
  check_environment(environment, launcher);
  const bool wanted = wants_mpi(environment, launcher);
  if (mpi_ && !wanted) leave_mpi();
  if (!mpi_ && wanted) join_mpi(environment, launcher);
  const auto facts = mpi_ ? std::optional(mpi_->facts()) : std::nullopt;
  job_ = identify(environment, facts, launcher, read_host_facts(environment), options_.phantoms);
  log_mpi();
  log::set_rank(job_.rank, job_.world);
}

// A launcher that does not need MPI works without an MPI library.
void Runtime::join_mpi(const Environment& environment, const std::string& launcher) {
  try {
    mpi::load(library_request(environment, launcher, programs_above()));
  } catch (const InputError& error) {
    if (needs_mpi(environment, launcher) || is_set(environment, "LOCKSTEP_MPI")) throw;
    without_mpi_ = error.what();
    return;
  }
  const ScopedPluginVariables plugins(options_.only_mpi_user
                                          ? plugins_of_one_node(environment, mpi::loaded()->version)
                                          : std::vector<std::pair<std::string, std::string>>());
  mpi_ = std::make_unique<MpiSession>(join_timeout());
}

void Runtime::log_mpi() {
  const auto* library = mpi::loaded();
  if (!without_mpi_.empty()) job_.warnings.push_back("without MPI: " + without_mpi_);
  if (!mpi_) return;
  job_.mpi = library->version;
  job_.because["mpi"] = format("{} in {}", library->version, library->file);
  job_.because["mpi_choice"] = library->because;
}

std::chrono::milliseconds Runtime::join_timeout() const {
  return seconds_in(current_environment(), "LOCKSTEP_JOIN_TIMEOUT", options_.join_timeout);
}

void Runtime::set_timeout(std::chrono::milliseconds timeout) {
  if (mpi_) mpi_->set_timeout(timeout);
}

void Runtime::set_launcher(const std::string& launcher) {
  exchange_.reset();
  identify_as(launcher);
}

void Runtime::leave_mpi() {
  mpi_->finish(seconds_in(current_environment(), "LOCKSTEP_LEAVE_TIMEOUT", options_.leave_timeout));
  mpi_.reset();
}

Runtime::~Runtime() {
  if (!mpi_ || std::uncaught_exceptions() > exceptions_at_start_) return;
  try {
    leave_mpi();
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

TextExchange* Runtime::exchange() const {
  return mpi_ ? mpi_.get() : exchange_.get();
}

std::string Runtime::broadcast(const std::string& text) const {
  return exchange() ? exchange()->broadcast(text) : text;
}

std::vector<std::string> Runtime::all_gather(const std::string& text) const {
  return exchange() ? exchange()->all_gather(text) : std::vector{text};
}

std::vector<std::string> Runtime::gather(const std::string& text) const {
  return exchange() ? exchange()->gather(text) : std::vector{text};
}

std::string Runtime::from_first(const std::function<std::string()>& work) const {
  return base::unpack_outcome(broadcast(job_.rank == 0 ? base::pack_outcome(work) : ""));
}

void Runtime::barrier() const {
  mpi_ ? mpi_->barrier() : void(all_gather(""));
}

void Runtime::abort(int status) const {
  if (mpi_) mpi::calls().abort(mpi::Comm::world, status);
  _exit(status);
}

}  // namespace lockstep::launch
