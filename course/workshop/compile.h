#pragma once
// A learner's file becomes a program, with the compiler and the libtorch that lockstep was built with.

#include <chrono>
#include <optional>
#include <string>

namespace lockstep::workshop {

/// The folder with the precompiled workshop.h for this compiler, if there is one.
std::optional<std::string> precompiled_folder();
/// Precompiles it, once for all learners, beside the install or in LOCKSTEP_WORKSHOP. Returns the folder.
std::string precompile();

/// Compiles `source` to `program`; the compiler's temporary files go to `scratch`. CheckFailure, with the
/// first errors, where the compiler rejects the source.
void compile(const std::string& source, const std::string& program, const std::string& scratch,
             std::chrono::milliseconds longest = std::chrono::minutes(3));

/// At most a dozen lines of what the compiler printed, errors first; the source by its name alone.
std::string compiler_errors(const std::string& printed, const std::string& source);

}  // namespace lockstep::workshop
