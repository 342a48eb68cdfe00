#pragma once
// Which MPI library this process uses: looked for and loaded once, by who started the process.

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::mpi {

/// Libraries of a family share one binary interface.
enum class Family { open_mpi, mpich, standard };

/// "Open MPI"
std::string_view title_of(Family family);
/// Those that this lockstep can use, as LOCKSTEP_MPI names them: of openmpi, mpich, abi.
std::vector<std::string> supported();

/// What to look for, and where.
struct Wish {
  std::vector<Family> families = {Family::open_mpi, Family::mpich, Family::standard};  // likeliest first
  std::vector<std::string> folders = {};  // before where the system looks, likeliest first
  std::string file = {};                  // the library itself, where somebody named it
  std::string because = {};
};

struct Library {
  Family family;
  std::string file;
  std::string version = {};  // "Open MPI v4.1.4"
  std::string because = {};
};

/// Keeps to LOCKSTEP_MPI, a family or a library's path, where it says something.
Wish with_choice(Wish wish, const std::string& choice);

/// Loads it; where an MPI is in the process already, that one. Once is enough: later wishes are not heard.
/// Throws InputError where there is none.
const Library& load(const Wish& wish);
/// nullptr where none has been loaded.
const Library* loaded();

}  // namespace lockstep::mpi
