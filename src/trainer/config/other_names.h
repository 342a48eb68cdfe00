#pragma once
// What other training tools call our keys.

#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

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

// The mistakes of one config: gathered, so that a person fixes them in one go.

class Mistakes {
 public:
  /// Does the work, and keeps the error that it ends with.
  template <class Work>
  void gather(const Work& work) {
    try {
      work();
    } catch (const InputError& error) {
      found_.push_back(error);
    }
  }

  /// Throws where there were any: the one as it was, or one error that says them all.
  void refuse() const;

 private:
  std::vector<InputError> found_;
};

}  // namespace lockstep::config
