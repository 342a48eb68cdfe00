#include "lockstep/launch/process/mpi_wish.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "lockstep/base/format.h"
#include "lockstep/base/words.h"
#include "lockstep/launch/launchers.h"
#include "lockstep/launch/variables.h"

namespace lockstep::launch {
namespace fs = std::filesystem;
namespace {

constexpr int kHighest = 16;  // processes above this one

// the parts of an MPI that start ranks
constexpr std::array kStarters = {"mpirun",  "mpiexec", "orterun", "orted",
                                  "prterun", "prted",   "prte",    "hydra_"};

// where an MPI's module says that it lies
constexpr std::array kRoots = {"MPI_HOME",   "MPI_ROOT",  "OPAL_PREFIX",    "EBROOTOPENMPI", "I_MPI_ROOT",
                               "EBROOTIMPI", "MPICH_DIR", "CRAY_MPICH_DIR", "EBROOTMPICH"};

constexpr std::array kLibraryFolders = {"/lib", "/lib64", "/lib/release", "/lib/x86_64-linux-gnu",
                                        "/lib/aarch64-linux-gnu"};

bool is_starter(const std::string& program) {
  const auto name = fs::path(program).filename().string();
  return std::any_of(kStarters.begin(), kStarters.end(),
                     [&](const char* known) { return name.starts_with(known); });
}

bool is_hydras(const std::string& program) {
  return fs::path(program).filename().string().starts_with("hydra_");
}

void add_libraries_of(const std::string& root, std::vector<std::string>& folders) {
  for (const char* folder : kLibraryFolders) folders.push_back(root + folder);
}

// "1234 (some name) S 1 ...": the parent is the second word after the last bracket
pid_t parent_in_stat(pid_t process) {
  std::ifstream file(format("/proc/{}/stat", process));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto words = base::split(text.substr(std::min(text.size(), text.rfind(')') + 1)), ' ');
  return words.size() > 2 ? std::atoi(words[2].c_str()) : 0;
}

std::string word_of(const Launcher* row, const Environment& environment, const std::string& choice) {
  if (choice != "auto") return "--launcher " + choice;
  return format("{} is set", is_set(environment, row->rank) ? row->rank : row->world);
}

}  // namespace

std::vector<std::string> programs_above() {
  std::vector<std::string> programs;
  auto process = ::getppid();
  for (int i = 0; i < kHighest && process > 1; ++i, process = parent_in_stat(process)) {
    std::error_code unreadable;
    const auto program = fs::read_symlink(format("/proc/{}/exe", process), unreadable);
    if (!unreadable) programs.push_back(program.string());
  }
  return programs;
}

mpi::Wish wish_for_mpi(const Environment& environment, const std::string& choice,
                       const std::vector<std::string>& above) {
  mpi::Wish wish;
  const auto* row = find_launcher(environment, choice);
  wish.because = word_of(row, environment, choice);
  if (row) wish.families.assign(row->answers.begin(), row->answers.end());
  const auto starter = std::find_if(above.begin(), above.end(), is_starter);
  if (starter != above.end()) {
    wish.because += ", started by " + *starter;
    add_libraries_of(fs::path(*starter).parent_path().parent_path().string(), wish.folders);
    if (is_hydras(*starter)) wish.families = {mpi::Family::mpich, mpi::Family::standard};
  }
  for (const auto& folder : base::split(text_of(environment, "LD_LIBRARY_PATH"), ':')) {
    if (!folder.empty()) wish.folders.push_back(folder);
  }
  for (const char* root : kRoots) {
    if (is_set(environment, root)) add_libraries_of(text_of(environment, root), wish.folders);
  }
  return mpi::with_choice(wish, text_of(environment, "LOCKSTEP_MPI"));
}

}  // namespace lockstep::launch
