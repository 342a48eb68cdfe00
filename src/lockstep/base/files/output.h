#pragma once
// Standard output: written at once, and what a full disk swallows is not forgotten.

#include <string>

namespace lockstep::output {

/// Writes all of the text; false where it, or what came before it, got lost.
bool print(const std::string& text);

/// A line of an answer, safe to show. What gets lost of it is check()'s to tell.
void line(const std::string& text);

/// Throws Error where something that was printed got lost. A reader that has left (| head) is no failure.
void check();

}  // namespace lockstep::output
