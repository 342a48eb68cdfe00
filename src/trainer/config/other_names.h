#pragma once
// What other training tools call our keys.

#include <span>
#include <string>

namespace lockstep::config {

struct OtherName {
  const char* name;  // lower case, with '_'
  const char* ours;
};

/// All that is known of keys.
std::span<const OtherName> other_names_of_keys();

/// "optim.lr" for "learning_rate", whatever its case and whether it has '-' or '_'; empty where no key is
/// meant.
std::string key_by_other_name(const std::string& name);

/// "optim" for "optimizer"; empty where no section is meant.
std::string section_by_other_name(const std::string& name);

}  // namespace lockstep::config
