#pragma once
// Keys of the config in the place of options or of words: what to write in their place.

#include <string>
#include <vector>

namespace lockstep::cli {

/// How near a name must be to a key.
enum class Near { named, spelt };  ///< a key's name or another tool's for it; or a typing error of one

/// "--set train.epochs=3" for the option that stands as `--epochs 3` or `--epochs=3` in `args`; empty where
/// it means no key.
std::string setting_of_option(const std::string& option, const std::vector<std::string>& args, Near near);

/// The same of a word without dashes: "train.epochs=3". Empty too where a file has that name.
std::string setting_of_word(const std::string& word);

/// The same of `--set train.epochs 3` in `args`; empty where each --set has its '='.
std::string setting_in_two_words(const std::vector<std::string>& args);

}  // namespace lockstep::cli
