#pragma once
// What torch.save wrote before PyTorch 1.6 (and writes with _use_new_zipfile_serialization=False): a run of
// pickles, then the storages. It has no checksums.

#include <array>
#include <cstdint>
#include <span>

#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/tree.h"

namespace lockstep::checkpoint {

bool is_legacy(std::span<const uint8_t> file);
Tree read_legacy(const NamedBytes& file);

}  // namespace lockstep::checkpoint
