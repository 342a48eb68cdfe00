#include "checkpoint/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/descriptor.h"
#include "base/error.h"
#include "checkpoint/cursor.h"

namespace lockstep {

namespace {

std::string reason() {
  return std::strerror(errno);
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (!file || ::fstat(file.number(), &facts) != 0)
    throw InputError("cannot read the file: " + reason(), path,
                     "name a .pt or .safetensors file, or a run's folder");
  if (!S_ISREG(facts.st_mode))
    throw InputError("this is not a file", path, "name a .pt or .safetensors file");
  size_ = static_cast<size_t>(facts.st_size);
  if (size_ == 0) throw InputError("the file is empty", path, kCopyAgain);
  void* map = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (map == MAP_FAILED)
    throw InputError("cannot read the file: " + reason(), path,
                     "name a .pt or .safetensors file, or a run's folder");
  data_ = static_cast<const uint8_t*>(map);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace lockstep
