#pragma once
// Whether a person sees what this process writes: a terminal of its own, or the one its launcher writes to.

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
  /// Its columns now; 80 where it does not know.
  int width() const;

 private:
  base::Descriptor file_;
};

/// The terminal on which standard output (1) or error (2) ends. mpirun gives its ranks pipes: then it is the
/// terminal of an mpirun on this host that reads our pipe and passes it on as it is. nullopt where a file or
/// a pipe of the user's lies between, or a terminal that cannot redraw a line.
std::optional<Terminal> terminal_behind(int descriptor);

/// The name of the process where it is an mpirun or mpiexec, else empty.
std::string launcher_named(pid_t process);

/// Whether what is written there may be coloured: it ends on a terminal that has colours, and the person has
/// not set NO_COLOR.
bool has_colour(int descriptor);

/// The log's lines as wide as the terminal behind standard error, in colour; plain where there is none.
void fit_log_to_terminal();

/// Whether mpirun or mpiexec, called like this, puts marks into its ranks' lines or writes them to files.
bool rewrites_output(const std::vector<std::string>& command_line);

}  // namespace lockstep::launch
