#include "lockstep/checkpoint/file.h"

#include <sys/mman.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"

namespace lockstep::checkpoint {

MappedFile::MappedFile(const std::string& path, const FileWords& words) : path_(path) {
  const base::RegularFile file(path, words.what, words.another);
  if (file.size() == 0) throw InputError(words.empty, path, words.again);
  map_.emplace(file.number(), 0, file.size(), PROT_READ, MAP_PRIVATE, path);
}

}  // namespace lockstep::checkpoint
