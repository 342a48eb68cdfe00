#include "fuzz/fenced.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

namespace lockstep::fuzz {
namespace {

constexpr size_t kAligned =
    64;  // as libtorch promises it: what is left of it behind a tensor is looked at in the end
constexpr int kFilled = 0xa5;

size_t rounded(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

struct Block {
  uint8_t* map;
  size_t mapped, bytes;
};

class Fence : public c10::Allocator {
 public:
  void set_most(size_t bytes) { left_ = bytes; }

  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes > 0 ? take(bytes) : nullptr;
    return {data, data, give_back, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  static Fence& instance() {
    static auto* fence = new Fence;  // tensors may outlive whatever is destroyed at exit
    return *fence;
  }

 private:
  void* take(size_t bytes) {
    TORCH_CHECK_WITH(OutOfMemoryError, bytes <= left_, "the run may not hold ", bytes, " bytes more");
    static const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const auto inside = rounded(bytes, page), mapped = inside + 2 * page;
    auto* map = static_cast<uint8_t*>(
        ::mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    TORCH_CHECK_WITH(OutOfMemoryError, map != MAP_FAILED, "there is no memory left");
    TORCH_CHECK_WITH(OutOfMemoryError, ::mprotect(map + page, inside, PROT_READ | PROT_WRITE) == 0,
                     "there is no memory left");
    auto* data = map + page + inside - rounded(bytes, kAligned);
    std::memset(data + bytes, kFilled, rounded(bytes, kAligned) - bytes);
    blocks_[data] = {map, mapped, bytes};
    left_ -= bytes;
    return data;
  }

  static void give_back(void* data) {
    if (data) instance().give(static_cast<uint8_t*>(data));
  }
  void give(uint8_t* data) {
    const auto block = blocks_.extract(data).mapped();
    for (auto* at = data + block.bytes; at < data + rounded(block.bytes, kAligned); ++at) {
      if (*at == kFilled) continue;
      std::fputs("something was written behind a tensor\n", stderr);
      std::abort();
    }
    left_ += block.bytes;
    ::munmap(block.map, block.mapped);
  }

  size_t left_ = 0;
  std::unordered_map<const void*, Block> blocks_;
};

}  // namespace

void fence_tensors(size_t most_bytes) {
  constexpr uint8_t kBeforeTheOwn = 1;
  Fence::instance().set_most(most_bytes);
  c10::SetCPUAllocator(&Fence::instance(), kBeforeTheOwn);
}

}  // namespace lockstep::fuzz
