#pragma once
// A learner's file becomes a program: with the compiler and the libtorch that lockstep was built with.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "course/workshop/process.h"

namespace lockstep::workshop {

/// The command that makes `program` of `source`.
std::vector<std::string> compile_command(const std::string& source, const std::string& program);

/// The folder whose workshop.h is precompiled for this compiler, if there is one.
std::optional<std::string> precompiled_folder();
/// Precompiles it, once for all learners, beside the install or in LOCKSTEP_WORKSHOP. Returns the folder.
std::string precompile();

/// Makes `program` of `source`; what the compiler needs meanwhile lies in `scratch`. NotYet, in few lines,
/// where the compiler objects.
void compile(const std::string& source, const std::string& program, const std::string& scratch,
             std::chrono::milliseconds longest = std::chrono::minutes(3));

/// At most a dozen lines of what it printed: errors before anything else, `source` by its name alone.
std::string compiler_words(const std::string& printed, const std::string& source);

}  // namespace lockstep::workshop
