#pragma once
// The terminal that shows what this process writes: its own, or that of its mpirun.

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/descriptor.h"

namespace lockstep::launch {

/// An open terminal.
class Terminal {
 public:
  explicit Terminal(base::Descriptor file) : file_(std::move(file)) {}
  /// Its columns now; 80 if unknown.
  int width() const;

 private:
  base::Descriptor file_;
};

/// The terminal that shows standard output (1) or error (2). mpirun gives its ranks pipes: then it is the
/// terminal of an mpirun on this host that reads our pipe and copies it unchanged. nullopt if output goes to
/// a file or to another pipe, or if TERM is dumb.
std::optional<Terminal> terminal_behind(int descriptor);

/// The program of a process and its arguments; "self" is this one, also where /proc counts other pids.
std::vector<std::string> command_line_of(const std::string& process);

/// The name of the process if it is an mpirun or mpiexec, else empty.
std::string launcher_named(pid_t process);

/// Whether output there may have colors: it is shown on a terminal, and NO_COLOR is not set.
bool has_colour(int descriptor);

/// Whether mpirun or mpiexec with these arguments adds marks to its ranks' lines or writes them to files.
bool rewrites_output(const std::vector<std::string>& command_line);

}  // namespace lockstep::launch
