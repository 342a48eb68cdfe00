#pragma once
// Which folder a run writes to: a new one, or that of a run which can go on. Two jobs never share one, and
// nothing is written over.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/settings.h"
#include "trainer/run_folder/lock.h"

namespace lockstep::run_folder {

struct RunFolder {
  std::filesystem::path path;
  RunLock lock;
  bool goes_on = false;                 // an earlier attempt was here
  std::vector<std::string> notes = {};  // why this folder, for the log
};

/// An InputError where the folder is not one of a run's, or cannot be written.
void check_run_folder(const std::filesystem::path& path);

/// An InputError where no run's folder can be made. Leaves no trace.
void check_run_dir(const RunSettings& run);

/// Before the data are read: the config.yaml of the run that open_run_folder() will go on with; empty where
/// that is none. Touches nothing.
std::string config_to_go_on_with(const Settings& asked, const std::string& resume);

/// `resume`: empty = the first free of NAME, NAME-2, ...; "auto" = the newest run of that name that is
/// unfinished, not in use and of the same config, else a new one; a folder = that one. Runs are compared with
/// what was `asked` for; a new one gets it as it was `resolved`.
RunFolder open_run_folder(const Settings& asked, const std::string& resume, const Settings& resolved);
inline RunFolder open_run_folder(const Settings& settings, const std::string& resume) {
  return open_run_folder(settings, resume, settings);
}

/// The first write to it, once it is known that the run can go on there: what this attempt runs. What killed
/// writers left is swept.
void begin_in(const std::filesystem::path& folder, const Settings& settings);

/// A new folder for a run whose own, `removed`, is gone: another of its names.
RunFolder open_successor(const Settings& settings, const std::filesystem::path& removed);

}  // namespace lockstep::run_folder
