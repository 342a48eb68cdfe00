#pragma once
// What an exported file says of itself, as users read it.

#include "lockstep/exported/program.h"
#include "lockstep/models/exported.h"

namespace lockstep::models {

/// `has_eval`: there is a graph of its own for evaluation.
ExportedFacts facts_of(const exported::ExportedProgram& program, bool has_eval);

/// The operators that draw random numbers whatever mode the model is in, "randn_like, rand"; empty = none.
std::string draws_of(const exported::ExportedProgram& program);

}  // namespace lockstep::models
