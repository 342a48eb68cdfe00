#include "course/workshop/attempt.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "course/workshop/check.h"
#include "course/workshop/compile.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/json.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;

void expect(bool is_right, const std::string& what, const std::string& think,
            const std::vector<KnownMistake>& guesses) {
  if (is_right) return;
  for (const auto& guess : guesses)
    if (guess.is) throw CheckFailure(what + ": " + guess.what, guess.think.empty() ? think : guess.think);
  throw CheckFailure(what, think);
}

// --- what a rank showed

namespace {

double number_of(const nlohmann::json& value) {
  constexpr auto kInfinity = std::numeric_limits<double>::infinity();
  if (value.is_number()) return value.get<double>();
  if (value == "inf" || value == "-inf") return value == "inf" ? kInfinity : -kInfinity;
  return std::numeric_limits<double>::quiet_NaN();
}

// Lines that are cut off or are something else are passed over.
void add_fact(const nlohmann::json& fact, std::vector<ShownValue>& facts) {
  if (!fact.is_object() || !fact.contains("name") || !fact["name"].is_string()) return;
  ShownValue shown{fact["name"], {}, {}};
  if (fact.contains("text") && fact["text"].is_string()) shown.text = fact["text"];
  if (fact.contains("numbers") && fact["numbers"].is_array())
    for (const auto& value : fact["numbers"]) shown.numbers.push_back(number_of(value));
  facts.push_back(std::move(shown));
}

}  // namespace

RankRun::RankRun(int rank, Ending ending)
    : rank_(rank), about_(format("rank {}", rank)), ending_(std::move(ending)) {
  std::istringstream lines(ending_.facts);
  for (std::string line; std::getline(lines, line);) {
    add_fact(base::parse_json(line), shown_);
    if (auto fault = base::fault_in(line)) ending_.error = std::move(fault);
  }
}

void Run::add(Ending ending, int world) {
  auto& rank = ranks.emplace_back(static_cast<int>(ranks.size()), std::move(ending));
  if (world > 1) rank.about_ = format("with {} ranks, rank {}", world, rank.rank());
}

bool RankRun::has(const std::string& name) const {
  return std::any_of(shown_.begin(), shown_.end(), [&](const ShownValue& fact) { return fact.name == name; });
}

const ShownValue& RankRun::last(const std::string& name) const {
  for (auto fact = shown_.rbegin(); fact != shown_.rend(); ++fact)
    if (fact->name == name) return *fact;
  throw CheckFailure(
      format("rank {} never showed `{}`", rank_, name),
      format("keep the line show(\"{}\", ...), and check that rank {} reaches it", name, rank_));
}

double RankRun::number(const std::string& name) const {
  const auto& row = numbers(name);
  if (row.size() == 1) return row.front();
  throw CheckFailure(format("rank {} showed {} numbers as `{}` instead of one", rank_, row.size(), name));
}

const Row& RankRun::numbers(const std::string& name) const {
  return last(name).numbers;
}

const std::string& RankRun::text(const std::string& name) const {
  return last(name).text;
}

Rows RankRun::rows(const std::string& name) const {
  Rows found;
  for (const auto& fact : shown_)
    if (fact.name == name) found.push_back(fact.numbers);
  return found;
}

Rows RankRun::rows(const std::string& name, size_t count) const {
  auto found = rows(name);
  expect(found.size() == count,
         format("{} showed `{}` {} times instead of {}", about_, name, found.size(), count),
         "restore main(), which shows them all");
  return found;
}

Row RankRun::column(const std::string& name, size_t count) const {
  const auto values = flat(rows(name, count));
  expect(values.size() == count, format("{} showed {} numbers as `{}` instead of {}, one at a time", about_,
                                        values.size(), name, count));
  return values;
}

void RankRun::expect_numbers(const std::string& name, const Row& wanted, const std::string& think,
                             const std::vector<KnownMistake>& guesses) const {
  const auto& is = numbers(name);
  expect(agree(is, wanted),
         format("{} has {} as `{}`, but {} is correct", about_, shown(is), name, shown(wanted)), think,
         guesses);
}

void RankRun::expect_number(const std::string& name, double wanted, const std::string& think,
                            const std::vector<KnownMistake>& guesses) const {
  expect_numbers(name, {wanted}, think, guesses);
}

// --- running it

namespace {

constexpr size_t kLargestSource = 1 << 20;
constexpr const char* kCollectiveSeconds = "4";  // so that a rank that waits reports it within the run's time

// Binds a port and does not listen: nobody else gets it, and rank 0 may listen at it.
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
      throw Error("this machine has no free port", "127.0.0.1", "try again in a moment");
    number_ = ntohs(address.sin_port);
  }
  int number() const { return number_; }

 private:
  base::Descriptor socket_;
  int number_ = 0;
};

void add(launch::Environment& environment, const Words& settings) {
  for (const auto& setting : settings) {
    const auto sign = setting.find('=');
    environment[setting.substr(0, sign)] = sign == std::string::npos ? "" : setting.substr(sign + 1);
  }
}

// Without a launcher's or scheduler's variables: a check inside a job starts ranks of its own.
launch::Environment plain_environment(const std::string& folder) {
  static const auto foreign = base::split(
      "SLURM_* SBATCH_* PBS_* OMPI_* PMI_* PMIX_* PALS_* FLUX_* JSM_* LSB_* PRTE_* HYDRA_* HYDI_* MPI_* "
      "MPIR_* "
      "TORCHELASTIC_* RANK WORLD_SIZE LOCAL_RANK GROUP_RANK ROLE_RANK NCPUS LOCAL_WORLD_SIZE MASTER_ADDR "
      "MASTER_PORT",
      ' ');
  auto environment = launch::current_environment();
  std::erase_if(environment, [](const auto& entry) { return base::is_among(entry.first, foreign); });
  environment["TMPDIR"] = folder;  // the next check removes what a program leaves there
  return environment;
}

// As torchrun sets it.
Words rank_settings(int rank, int port, const RunOptions& options) {
  Words settings = {"OMP_NUM_THREADS=1",
                    "CUDA_VISIBLE_DEVICES=", format("LOCKSTEP_TIMEOUT={}", kCollectiveSeconds)};
  const auto append = [&](const Words& more) { settings.insert(settings.end(), more.begin(), more.end()); };
  if (!options.alone)
    append({"MASTER_ADDR=127.0.0.1", format("MASTER_PORT={}", port), format("WORLD_SIZE={}", options.world),
            format("LOCAL_WORLD_SIZE={}", options.world), format("RANK={}", rank),
            format("LOCAL_RANK={}", rank)});
  append(options.settings);
  if (const auto own = static_cast<size_t>(rank); own < options.rank_settings.size())
    append(options.rank_settings[own]);
  return settings;
}

}  // namespace

Attempt::Attempt(std::string source, std::string program, std::string folder, bool is_built)
    : source_(std::move(source)),
      program_(std::move(program)),
      folder_(std::move(folder)),
      text_(base::read_small_file(source_, kLargestSource, "your file of this exercise")),
      is_built_(is_built) {
  std::error_code failed;
  fs::remove_all(folder_, failed);
  if (!failed) fs::create_directories(folder_, failed);
  if (failed)
    throw InputError(format("cannot empty the folder in which your program runs: {}", failed.message()),
                     folder_, "remove it by hand, then check again");
}

Run Attempt::run(const RunOptions& options) {
  if (!is_built_) {
    say_step(precompiled_folder() ? "building"
                                  : "building without a precompiled header; run `lockstep workshop prepare` "
                                    "once to make it faster");
    compile(source_, program_, folder_);
    is_built_ = true;
  }
  Words argv = {program_};
  argv.insert(argv.end(), options.args.begin(), options.args.end());
  const auto run = run_ranks(argv, options);
  if (!options.may_fail) require_good_end(run, {.time = options.time}, folder_);
  return run;
}

Run Attempt::lockstep(const Words& args, const RunOptions& options) {
  Words argv = {fs::read_symlink("/proc/self/exe").parent_path() / "lockstep"};
  argv.insert(argv.end(), args.begin(), args.end());
  const auto run = run_ranks(argv, options);
  printed_.clear();
  if (!options.may_fail) require_good_end(run, {.time = options.time}, folder_);
  return run;
}

Run Attempt::run_ranks(const Words& argv, const RunOptions& options) {
  const auto counted = options.world == 1 ? std::string("1 rank") : format("{} ranks", options.world);
  const auto& label = options.label.empty() ? counted : options.label;
  if (label != told_) say_step(label);
  told_ = label;
  auto words = options.before;
  words.insert(words.end(), argv.begin(), argv.end());
  const Port port;
  std::vector<Command> commands;
  for (int rank = 0; rank < options.world; ++rank) {
    auto environment = plain_environment(folder_);
    add(environment, rank_settings(rank, port.number(), options));
    commands.push_back({words, environment, folder_});
  }
  ProgramLimits limits{.time = options.time};
  if (options.may_fail) limits.grace = options.time;  // the others may go on without it
  Run run;
  printed_.clear();
  for (auto& ending : run_limited(commands, limits)) {
    std::ofstream(rank_log(folder_, static_cast<int>(run.ranks.size())), std::ios::binary) << ending.printed;
    printed_.push_back(ending.printed);
    run.add(std::move(ending), options.world);
  }
  return run;
}

Ending Attempt::start(const Words& argv, const Words& settings) {
  auto environment = plain_environment(folder_);
  add(environment, settings);
  return run_limited({{argv, environment, folder_}}, {}).front();
}

std::string rank_log(const std::string& folder, int rank) {
  return folder + format("/rank-{}.log", rank);
}

// --- the checks

namespace {

std::map<std::string, Check>& checks() {
  static std::map<std::string, Check> table;
  return table;
}

}  // namespace

Check find_check(const std::string& exercise) {
  const auto found = checks().find(exercise);
  return found == checks().end() ? nullptr : found->second;
}

bool add_check(const char* exercise, Check check) {
  return checks().emplace(exercise, check).second;
}

// --- numbers

Row of_all(const Run& run, const std::string& name) {
  Row row;
  for (const auto& rank : run.ranks) row.push_back(rank.number(name));
  return row;
}

Row flat(const Rows& rows) {
  Row row;
  for (const auto& part : rows) row.insert(row.end(), part.begin(), part.end());
  return row;
}

Words as_words(const Row& numbers) {
  Words words;
  for (const double number : numbers) words.push_back(format("{:.17g}", number));
  return words;
}

bool near(double is, double wanted, double tolerance) {
  return std::abs(is - wanted) <= tolerance * std::max(1.0, std::abs(wanted));
}

bool near(const Row& is, const Row& wanted, double tolerance) {
  return std::equal(is.begin(), is.end(), wanted.begin(), wanted.end(),
                    [&](double a, double b) { return near(a, b, tolerance); });
}

bool agree(double is, double wanted) {
  return workshop::near(is, wanted, 1e-5);
}

bool agree(const Row& is, const Row& wanted) {
  return near(is, wanted, 1e-5);
}

std::string shown(double number) {
  return format("{:.6g}", number);
}

std::string shown(const Row& numbers) {
  constexpr size_t kMost = 12;
  Words words;
  for (const double number : numbers) words.push_back(shown(number));
  if (words.size() > kMost) words.erase(words.begin() + kMost - 2, words.end() - 1);
  if (numbers.size() > kMost) words.insert(words.end() - 1, "...");
  return words.empty() ? "nothing" : base::join(words, " ");
}

void require_one_model(const Run& run, const std::string& name) {
  const auto& first = run.ranks.front().numbers(name);
  for (const auto& rank : run.ranks)
    expect(agree(rank.numbers(name), first),
           format("with {} ranks, {} is {} on rank 0 but {} on rank {}: each trains its own model",
                  run.ranks.size(), name, shown(first), shown(rank.numbers(name)), rank.rank()),
           "call forward() on the model that ddp() returned, which averages the gradients");
}

}  // namespace lockstep::workshop
