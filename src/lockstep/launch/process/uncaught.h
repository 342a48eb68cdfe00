#pragma once
// What no catch sees, such as an error in a thread of gloo's: said in words, and told to the other ranks.

#include <exception>
#include <functional>
#include <memory>
#include <string>

namespace lockstep::launch {

/// From now on an exception that nobody catches ends the process with its text and status 1, not with
/// SIGABRT, and where memory ends there is some left to say so. Handlers that the program has set stay.
/// `more` is put behind the text.
void never_abort(std::string (*more)() = nullptr);

/// Calls `tell` with the first line of such an error before the process ends, for as long as what is returned
/// lives. An error that it returns is said in the place of the other.
[[nodiscard]] std::shared_ptr<void> before_the_end(
    std::function<std::exception_ptr(const std::string& what)> tell);

}  // namespace lockstep::launch
