#pragma once
// Colour where a person sees it: on a terminal, and not where NO_COLOR is set.

#include <string>

#include "lockstep/base/ink.h"

namespace lockstep::workshop {

using base::Ink;

/// The text, safe to show, in this ink where standard output is a terminal that has it.
std::string inked(const std::string& text, Ink ink);

/// A line of it on standard output.
void say(const std::string& text, Ink ink = Ink::plain);

}  // namespace lockstep::workshop
