#include "lockstep/checkpoint/file.h"

#include <sys/mman.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/checkpoint/cursor.h"

namespace lockstep::checkpoint {
namespace {

constexpr const char* kNameOne = "name a .pt or .safetensors file, or a run's folder";

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const base::RegularFile file(path, "the checkpoint", kNameOne);
  if (file.size() == 0) throw InputError("the file is empty", path, kCopyAgain);
  map_.emplace(file.number(), 0, file.size(), PROT_READ, MAP_PRIVATE, path);
}

}  // namespace lockstep::checkpoint
