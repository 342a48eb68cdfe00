#pragma once
// What ranks on different nodes know and strangers do not, and how they show it without saying it.

#include <string>
#include <vector>

namespace lockstep::comm {

/// LOCKSTEP_SECRET, else what a file of this user's holds, which is made where there is none:
/// ~/.config/lockstep/secret. InputError where others may read it, or where neither can be had.
std::string job_secret();

/// HMAC-SHA256 of texts, in hex.
std::string seal(const std::string& secret, const std::vector<std::string>& texts);
/// In the same time wherever they differ.
bool is_same_seal(const std::string& one, const std::string& other);

/// A word that nobody guesses.
std::string fresh_word();

}  // namespace lockstep::comm
