#pragma once
// Which MPI library this process uses. It is found once, from the launcher of the process, and loaded.

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::mpi {

/// Libraries of a family share one binary interface.
enum class Family { open_mpi, mpich, standard };

/// "Open MPI"
std::string_view title_of(Family family);
/// Those that this lockstep supports, by the names for LOCKSTEP_MPI: openmpi, mpich, abi.
std::vector<std::string> supported();

/// What to look for and where.
struct LibraryRequest {
  std::vector<Family> families = {Family::open_mpi, Family::mpich, Family::standard};  // likeliest first
  std::vector<std::string> folders = {};  // before the system's folders, likeliest first
  std::string file = {};                  // the library itself, if the user named it
  std::string because = {};
};

struct Library {
  Family family;
  std::string file;
  std::string version = {};  // "Open MPI v4.1.4"
  std::string because = {};
};

/// Applies LOCKSTEP_MPI: a family, a library's path, or empty.
LibraryRequest apply_choice(LibraryRequest request, const std::string& choice);

/// Loads the library. Uses an MPI that is already in the process. Later calls return the same library. Throws
/// InputError if there is none.
const Library& load(const LibraryRequest& request);
/// nullptr if none is loaded.
const Library* loaded();

}  // namespace lockstep::mpi
