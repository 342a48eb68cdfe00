#pragma once
// What the checkpoint tests share: whole files in and out, trees that hold a bit of everything.

#include <torch/types.h>

#include <string>

#include "lockstep/base/files/file.h"
#include "lockstep/checkpoint/pt.h"
#include "peer.h"

namespace lockstep::test {

inline std::string pt_bytes(const Tree& tree) {
  std::string bytes;
  write_pt([&](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); }, tree);
  return bytes;
}

/// Reads bytes as a .pt file would be.
inline Tree read_bytes(const TempFolder& folder, const std::string& bytes) {
  return read_pt(folder.write("bytes.pt", bytes));
}

inline Tree small_checkpoint(int64_t step) {
  return make_dict({{"iter_no", step},
                    {"epoch", int64_t{1}},
                    {"model", make_dict({{"weight", at::full({4, 3}, static_cast<double>(step))},
                                         {"count", at::full({}, step, at::kLong)}})}});
}

}  // namespace lockstep::test
