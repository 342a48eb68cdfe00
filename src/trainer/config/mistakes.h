#pragma once
// The mistakes of one config: gathered, so that a person fixes them in one go.

#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::config {

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
