#include "lockstep/checkpoint/file.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/format.h"
#include "lockstep/checkpoint/cursor.h"

namespace lockstep::checkpoint {
namespace {

constexpr const char* kNameOne = "name a .pt or .safetensors file, or a run's folder";

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const base::RegularFile file(path, "the checkpoint", kNameOne);
  size_ = file.size();
  if (size_ == 0) throw InputError("the file is empty", path, kCopyAgain);
  void* map = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (map == MAP_FAILED)
    throw InputError(format("the checkpoint cannot be read: {}", std::strerror(errno)), path, kNameOne);
  data_ = static_cast<const uint8_t*>(map);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace lockstep::checkpoint
