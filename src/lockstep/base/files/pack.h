#pragma once
// Several texts in one, and back: what travels between ranks.

#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::base {

/// Any byte may be in a text.
std::string pack_texts(const std::vector<std::string>& texts);
/// Throws Error where `packed` is not what pack_texts() makes.
std::vector<std::string> unpack_texts(const std::string& packed);

/// An error on its way to the other ranks: its fault, and whether the input was wrong.
std::string pack_error(const std::exception& error);
/// Throws what pack_error() packed, of the same kind and in the same words.
[[noreturn]] void throw_packed_error(const std::string& packed);

/// What `work` gives, or its error, on its way to the other ranks.
std::string pack_outcome(const std::function<std::string()>& work);
/// Gives what the work gave, or throws its error.
std::string unpack_outcome(const std::string& packed);

}  // namespace lockstep::base
