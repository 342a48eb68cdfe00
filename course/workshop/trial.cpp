#include "course/workshop/trial.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "course/workshop/compile.h"
#include "course/workshop/folder.h"
#include "course/workshop/judge.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMostSource = 1 << 20;
constexpr const char* kCollectiveSeconds =
    "8";  // a rank that waits for another says so before its time is up

// What launchers and schedulers set; a check in a job starts ranks of its own.
constexpr std::array<const char*, 16> kForeign = {
    "SLURM_", "SBATCH_", "PBS_",  "OMPI_",  "PMI_",  "PMIX_", "PALS_", "FLUX_",
    "JSM_",   "LSB_",    "PRTE_", "HYDRA_", "HYDI_", "MPI_",  "MPIR_", "TORCHELASTIC_"};
constexpr std::array<const char*, 9> kForeignNames = {
    "RANK",        "WORLD_SIZE",  "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK",
    "MASTER_ADDR", "MASTER_PORT", "NCPUS"};

// A port that stays ours while ranks meet at it: it is bound, so that nobody else is given it, and does not
// listen, so that rank 0 may.
class Port {
 public:
  Port() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    ::setsockopt(socket_.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(socket_.number(), generic, size) != 0 || ::getsockname(socket_.number(), generic, &size) != 0)
      throw Error("no port of this machine is free", "127.0.0.1", "try again in a moment");
    number_ = ntohs(address.sin_port);
  }
  int number() const { return number_; }

 private:
  base::Descriptor socket_;
  int number_ = 0;
};

void add(launch::Environment& environment, const std::vector<std::string>& settings) {
  for (const auto& setting : settings) {
    const auto sign = setting.find('=');
    environment[setting.substr(0, sign)] = sign == std::string::npos ? "" : setting.substr(sign + 1);
  }
}

// as torchrun would: it needs nothing that a login node has not got
launch::Environment rank_environment(int rank, int port, const RunOptions& options) {
  auto environment = plain_environment();
  environment["OMP_NUM_THREADS"] = "1";
  environment["CUDA_VISIBLE_DEVICES"] = "";  // two ranks would share one GPU
  environment["LOCKSTEP_TIMEOUT"] = kCollectiveSeconds;
  if (!options.alone) {
    const auto world = std::to_string(options.world);
    add(environment, {"MASTER_ADDR=127.0.0.1", format("MASTER_PORT={}", port), "WORLD_SIZE=" + world,
                      "LOCAL_WORLD_SIZE=" + world, format("RANK={}", rank), format("LOCAL_RANK={}", rank)});
  }
  add(environment, options.settings);
  if (const auto own = static_cast<size_t>(rank); own < options.rank_settings.size())
    add(environment, options.rank_settings[own]);
  return environment;
}

}  // namespace

launch::Environment plain_environment() {
  auto environment = launch::current_environment();
  std::erase_if(environment, [](const auto& entry) {
    const auto& name = entry.first;
    const auto begins = [&](const char* prefix) { return name.starts_with(prefix); };
    return std::any_of(kForeign.begin(), kForeign.end(), begins) ||
           std::find(kForeignNames.begin(), kForeignNames.end(), name) != kForeignNames.end();
  });
  return environment;
}

Trial::Trial(std::string source, std::string program, std::string folder,
             std::function<void(const std::string&)> say, bool is_built)
    : source_(std::move(source)),
      program_(std::move(program)),
      folder_(std::move(folder)),
      text_(base::read_small_file(source_, kMostSource, "your file of this exercise")),
      say_(std::move(say)),
      built_(is_built) {
  make_empty(folder_);
}

Run Trial::run(const RunOptions& options) {
  if (!built_) {
    say_(precompiled_folder() ? "building"
                              : "building, slowly: `lockstep workshop prepare`, once, makes it quick");
    compile(source_, program_, folder_);
    built_ = true;
  }
  std::vector<std::string> argv = {program_};
  argv.insert(argv.end(), options.args.begin(), options.args.end());
  return run_ranks(argv, options, &printed_);
}

Run Trial::lockstep(const std::vector<std::string>& args, const RunOptions& options) {
  std::vector<std::string> argv = {fs::read_symlink("/proc/self/exe").parent_path() / "lockstep"};
  argv.insert(argv.end(), args.begin(), args.end());
  return run_ranks(argv, options, nullptr);
}

// several runs of one kind are one line
void Trial::tell(const RunOptions& options) {
  const auto counted = options.world == 1 ? std::string("1 rank") : format("{} ranks", options.world);
  const auto& words = options.label.empty() ? counted : options.label;
  if (words != told_) say_(words);
  told_ = words;
}

Run Trial::run_ranks(const std::vector<std::string>& argv, const RunOptions& options,
                     std::vector<std::string>* printed) {
  tell(options);
  std::vector<ConfinedCommand> commands;
  const Port port;
  auto words = options.before;
  words.insert(words.end(), argv.begin(), argv.end());
  for (int rank = 0; rank < options.world; ++rank)
    commands.push_back({words, with_temporaries(rank_environment(rank, port.number(), options)), folder_});
  ProgramLimits limits{.time = options.time};
  if (options.may_fail) limits.grace = options.time;  // the others may go on without it
  auto endings = run_confined(commands, limits);
  Run run;
  for (int rank = 0; rank < options.world; ++rank)
    run.ranks.emplace_back(rank, std::move(endings[static_cast<size_t>(rank)]));
  keep_logs(run);
  if (printed) {
    printed->clear();
    for (const auto& rank : run.ranks) printed->push_back(rank.ending().printed);
  }
  if (!options.may_fail) require_good_end(run, limits, folder_);
  return run;
}

// whatever a program leaves in a temporary folder goes with the next check
launch::Environment Trial::with_temporaries(launch::Environment environment) const {
  environment["TMPDIR"] = folder_;
  return environment;
}

// what a rank printed, for who wants to read all of it
void Trial::keep_logs(const Run& run) const {
  for (const auto& rank : run.ranks)
    std::ofstream(rank_log(folder_, rank.rank()), std::ios::binary) << rank.ending().printed;
}

Ending Trial::start(const std::vector<std::string>& argv, const std::vector<std::string>& settings) {
  auto environment = plain_environment();
  add(environment, settings);
  return run_confined({{argv, environment, folder_}}, {}).front();
}

}  // namespace lockstep::workshop
