#include "lockstep/data/mapping.h"

#include <ATen/ATen.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::data {

Mapping::Mapping(int fd, int64_t offset, size_t bytes, int protection) : bytes_(bytes) {
  data_ = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, offset);
  if (data_ == MAP_FAILED)
    throw Error(format("cannot map {} bytes of shared data: {}", bytes, strerror(errno)),
                "shared memory of this node", "ask for more memory, and look at the limit of ulimit -v");
}

Mapping::~Mapping() {
  ::munmap(data_, bytes_);
}

void Mapping::make_read_only() const {
  ::mprotect(data_, bytes_, PROT_READ);
}

at::Tensor view_of(std::shared_ptr<Mapping> mapping, char* place, at::IntArrayRef shape,
                   at::ScalarType type) {
  return at::from_blob(
      place, shape, [mapping = std::move(mapping)](void*) {}, at::TensorOptions(type));
}

}  // namespace lockstep::data
