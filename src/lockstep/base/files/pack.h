#pragma once
// Messages between ranks: several texts as one, results and errors.

#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::base {

/// Any byte may be in a text.
std::string pack_texts(const std::vector<std::string>& texts);
/// Throws Error if pack_texts() did not make `packed`.
std::vector<std::string> unpack_texts(const std::string& packed);

/// An error as a message to other ranks, in JSON.
std::string pack_error(const std::exception& error);
/// Throws the error that pack_error() packed.
[[noreturn]] void throw_packed_error(const std::string& packed);

/// The result of `work`, or its error, as a message to other ranks.
std::string pack_outcome(const std::function<std::string()>& work);
/// Returns the result of that work, or throws its error.
std::string unpack_outcome(const std::string& packed);

}  // namespace lockstep::base
