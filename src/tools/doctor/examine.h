#pragma once
// The examination: the ranks start, tell their facts, meet, and are looked at, within bounds of time whatever
// is broken.

#include "tools/doctor/node/settings.h"

namespace lockstep::doctor {

/// Collective where the ranks can meet. Prints on rank 0, or on every rank that could not be heard; returns
/// the status to leave with. Does not return where something hung: then it has printed what it had.
int examine(const DoctorSettings& settings);

}  // namespace lockstep::doctor
