#pragma once
// Several texts in one, and back: what travels between ranks.

#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::base {

/// Any byte may be in a text.
std::string pack_texts(const std::vector<std::string>& texts);
/// Throws Error where `packed` is not what pack_texts() makes.
std::vector<std::string> unpack_texts(const std::string& packed);

/// An error on its way to the other ranks.
std::string pack_error(const Error& error);
/// Throws what pack_error() packed, of the same kind and in the same words.
[[noreturn]] void throw_packed_error(const std::string& packed);

}  // namespace lockstep::base
