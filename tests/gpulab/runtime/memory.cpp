#include "memory.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "../lab.h"
#include "devices.h"
#include "settings.h"

namespace pretended {
namespace {

constexpr size_t kRange = size_t{1} << 36;      // of addresses, a device
constexpr size_t kAlignment = size_t{1} << 21;  // of an allocation
constexpr size_t kGrain = 512;                  // of its length
constexpr size_t kPoisoned = size_t{64} << 20;  // at most: more would be slow
constexpr unsigned char kPoison = 0xff;         // NaN in each floating-point type

struct Memory {
  std::mutex mutex;
  std::atomic<char*> base{nullptr};
  std::map<size_t, size_t> used;  // offset: length
  size_t taken = 0;
};

std::array<Memory, kMaxDevices>& memories() {
  static auto& all = *new std::array<Memory, kMaxDevices>;
  return all;
}

Memory& of(int device) {
  return memories()[static_cast<size_t>(device)];
}

size_t round_up(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

char* range_of(Memory& memory) {
  if (char* base = memory.base) return base;
  void* got =
      ::mmap(nullptr, kRange, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED) {
    std::perror("[gpulab] no addresses for a device's memory");
    std::abort();
  }
  return memory.base = static_cast<char*>(got);
}

// The first gap that is long enough.
size_t gap_for(const Memory& memory, size_t bytes) {
  size_t offset = kAlignment;
  for (const auto& [at, length] : memory.used) {
    if (at >= offset + bytes) break;
    offset = round_up(at + length, kAlignment);
  }
  return offset;
}

void poison(char* at, size_t bytes) {
  static const bool wanted = number("LAB_POISON", 1) != 0;
  if (wanted && bytes <= kPoisoned) std::memset(at, kPoison, bytes);
}

}  // namespace

void* take(int device, size_t bytes) {
  Memory& memory = of(device);
  const lab::Access access;
  const std::lock_guard lock(memory.mutex);
  const size_t left = total_bytes() - memory.taken;
  if (bytes > left || round_up(bytes, kGrain) > left) return nullptr;
  bytes = round_up(bytes, kGrain);
  const size_t offset = gap_for(memory, bytes);
  if (offset + bytes > kRange) return nullptr;
  char* at = range_of(memory) + offset;
  memory.used[offset] = bytes;
  memory.taken += bytes;
  poison(at, bytes);
  return at;
}

bool give_back(void* pointer) {
  const int device = lab::device_of(pointer);
  if (device < 0) return false;
  Memory& memory = of(device);
  const std::lock_guard lock(memory.mutex);
  const auto found = memory.used.find(static_cast<size_t>(static_cast<char*>(pointer) - memory.base));
  if (found == memory.used.end()) return false;
  ::madvise(pointer, found->second, MADV_DONTNEED);
  memory.taken -= found->second;
  memory.used.erase(found);
  return true;
}

size_t free_bytes(int device) {
  Memory& memory = of(device);
  const std::lock_guard lock(memory.mutex);
  return total_bytes() - memory.taken;
}

void protect_memory(bool open) {
  for (Memory& memory : memories())
    if (char* base = memory.base) ::mprotect(base, kRange, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

}  // namespace pretended

namespace lab {

int device_of(const void* pointer) {
  const auto& all = pretended::memories();
  for (int device = 0; device < pretended::kMaxDevices; ++device) {
    const char* base = all[static_cast<size_t>(device)].base;
    if (base && pointer >= base && pointer < base + pretended::kRange) return device;
  }
  return -1;
}

}  // namespace lab
