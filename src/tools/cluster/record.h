#pragma once
// What job_scripts/record.sh writes of a job, read while it is being written.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::cluster {

/// Where a submitted job stands, as far as its scripts have said.
struct Recorded {
  std::string job;                 ///< as its script calls it; empty = it has not begun
  bool replaced = false;           ///< another one was submitted in its place: that is `job`
  bool began = false;              ///< it runs, or has run
  bool again = false;              ///< it has asked to be started again, and has not been yet
  int restarts = 0;                ///< how often it was, or another took its place
  std::filesystem::path run_file;  ///< what will name the run's folder, while the script runs
  std::filesystem::path folder;    ///< of the run, once the script has ended
  std::optional<int> status = {};  ///< what the script ended with
};

/// What a record's text says of the job that it begins with, and of those in its place.
Recorded read_record(const std::string& text);

/// The same of a file; one that is not there yet says nothing.
Recorded read_record_file(const std::filesystem::path& path);

/// The run's folder: as the record says it, or its run_file; empty where there is none yet.
std::filesystem::path folder_of(const Recorded& recorded);

}  // namespace lockstep::cluster
