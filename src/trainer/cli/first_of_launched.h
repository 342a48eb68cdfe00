#pragma once
// Below mpirun or srun one process of a command that starts ranks of its own does the work and speaks.

namespace lockstep::cli {

/// False where a launcher started others and one of them is the first. Ends the process, with status 2 and in
/// words, where nobody launched it and variables left in the shell say that it is a rank above 0.
bool is_first_of_launched();

}  // namespace lockstep::cli
