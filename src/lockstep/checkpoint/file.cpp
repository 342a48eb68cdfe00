#include "lockstep/checkpoint/file.h"

#include <ATen/ATen.h>
#include <sys/mman.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"

namespace lockstep::checkpoint {

MappedFile::MappedFile(const std::string& path, const char* what, const char* hint)
    : path_(path), file_(path, what, hint) {
  if (file_.size() == 0) throw InputError("the file is empty", path, hint);
  map_ = std::make_shared<base::FileMap>(file_.number(), 0, file_.size(), PROT_READ, MAP_PRIVATE, path);
}

at::Tensor copy_of(std::span<const uint8_t> bytes) {
  auto copy = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), copy.mutable_data_ptr<uint8_t>());
  return copy;
}

at::Tensor view_of(const std::shared_ptr<base::FileMap>& map, std::span<const uint8_t> bytes) {
  return at::from_blob(
      const_cast<uint8_t*>(bytes.data()), {static_cast<int64_t>(bytes.size())}, [map](void*) {}, at::kByte);
}

namespace {

constexpr int64_t kMostElements = int64_t{1} << 48;
constexpr int64_t kMostRepeated = int64_t{1} << 24;  // bytes of an expanded tensor, whatever its storage

/// The elements a storage must have, or -1 where the claim makes no sense. Sets numel.
int64_t reach(const TensorClaim& claim, int64_t& numel) {
  numel = 1;
  if (claim.offset < 0 || claim.offset > kMostElements || claim.sizes.size() > kMostDimensions) return -1;
  auto last = claim.offset;
  for (size_t i = 0; i < claim.sizes.size(); ++i) {
    const auto size = claim.sizes[i], stride = claim.strides[i];
    if (size < 0 || size > kMostElements || stride < 0) return -1;
    if (size == 0) numel = 0;
    if (numel > 0 && size > kMostElements / numel) return -1;
    numel *= size;
    if (size < 2) continue;
    if (stride > kMostElements / size) return -1;
    last += (size - 1) * stride;
    if (last > kMostElements) return -1;
  }
  return numel == 0 ? 0 : last + 1;
}

}  // namespace

at::Tensor rebuild_tensor(const at::Tensor& bytes, const TensorClaim& claim, const Cursor& input) {
  int64_t numel = 0;
  const auto needed = claim.sizes.size() == claim.strides.size() ? reach(claim, numel) : -1;
  const auto item = static_cast<int64_t>(c10::elementSize(claim.dtype));
  if (needed < 0 || needed * item > bytes.numel())
    input.fail(format("the file is damaged: a tensor of shape {} and strides {} reaches beyond its {} bytes",
                      c10::str(at::IntArrayRef(claim.sizes)), c10::str(at::IntArrayRef(claim.strides)),
                      bytes.numel()));
  if (numel * item > std::max(bytes.numel(), kMostRepeated))
    input.fail("the file holds an expanded tensor much larger than its data",
               "in Python, save a clone() of it");
  const auto options = at::TensorOptions().dtype(claim.dtype);
  return at::empty({0}, options)
      .set_(bytes.storage(), numel == 0 ? 0 : claim.offset, claim.sizes, claim.strides);
}

}  // namespace lockstep::checkpoint
