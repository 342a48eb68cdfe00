#pragma once
// Files and folders that the doctor puts into places of others for a moment: gone with their owner, at a
// sudden end, and, where a process was killed, with a later doctor.

#include <string>

#include "lockstep/base/descriptor.h"

namespace lockstep::doctor {

class Probe {
 public:
  enum class Kind { file, folder };
  /// `folder`/`name`XXXXXX. Throws Error with the system's reason. Removes those of the same name that this
  /// user's doctors of long ago have left there.
  Probe(const std::string& folder, const std::string& name, Kind kind);
  ~Probe();
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  const std::string& path() const { return path_; }
  /// Of a file, open to write.
  base::Descriptor& file() { return file_; }

 private:
  std::string path_;
  base::Descriptor file_;
};

/// All that are there now, from any thread: this process is about to end.
void remove_probes();

}  // namespace lockstep::doctor
