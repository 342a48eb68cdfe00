#pragma once
// Which samples, and how they come in batches.

#include <cstdint>
#include <string>

namespace lockstep {

/// The section `data` of a config.
struct DataSettings {
  std::string root;
  int64_t batch_size = 128;
  bool shuffle = true;
  bool drop_last = false;        // the sampler's
  bool drop_last_batch = false;  // the loader's
  int64_t workers = 2;
  bool pin_memory = true;
  bool resident = false;  // the training set lies on the rank's device
  int64_t bucket = 0;     // samples that are put in the order of their lengths; 0 = as they come
  std::string stage;

  bool operator==(const DataSettings&) const = default;
};

}  // namespace lockstep
