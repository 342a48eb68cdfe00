#pragma once
// The image in a file, PNG or JPEG as its first bytes say, whatever its name.

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/pixels/pixels.h"

namespace lockstep::data {

/// A file whose image cannot be read: which, and what is wrong.
struct DamagedImage : InputError {
  using InputError::InputError;
};

/// Reads one file after another; a thread has its own.
class ImageReader {
 public:
  /// Its pixels, until the next call. DamagedImage; InputError where this lockstep was built without its
  /// library.
  const Pixels& read(const std::string& path);

  /// Reads the first bytes and the last: DamagedImage where these show that it is none, or cut off.
  void check(const std::string& path);

 private:
  Pixels pixels_;
  std::vector<uint8_t> bytes_;
};

}  // namespace lockstep::data
