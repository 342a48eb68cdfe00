#pragma once
// How many bytes the tensors of the CPU hold, in all threads: libtorch's allocator, counted.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <atomic>
#include <cstdint>

namespace lockstep::test {

/// Of what is allocated while it lives: one at a time. The allocator that was there is put back.
class LiveBytes {
 public:
  LiveBytes() : before_(c10::GetCPUAllocator()), held_before_(counter().held) {
    counter().most = held_before_;
    c10::SetCPUAllocator(&counter(), kPriority);
  }
  ~LiveBytes() { c10::SetCPUAllocator(before_, kPriority); }
  LiveBytes(LiveBytes&&) = delete;

  int64_t most() const { return counter().most - held_before_; }
  int64_t now() const { return counter().held - held_before_; }

 private:
  static constexpr uint8_t kPriority = 100;  // above libtorch's own

  struct Counter : c10::Allocator {
    c10::DataPtr allocate(size_t size) override {
      void* data = below.raw_allocate(size);
      const int64_t now = held += size_of(data);
      for (int64_t high = most; high < now && !most.compare_exchange_weak(high, now);) {
      }
      return {data, data, &give_back, at::kCPU};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
    void copy_data(void* to, const void* from, size_t size) const override {
      default_copy_data(to, from, size);
    }
    c10::Allocator& below = *c10::GetDefaultCPUAllocator();
    std::atomic<int64_t> held = 0, most = 0;
  };

  // As long as the process: tensors outlive the counting.
  static Counter& counter() {
    static auto& one = *new Counter;
    return one;
  }
  static int64_t size_of(void* data) { return static_cast<int64_t>(::malloc_usable_size(data)); }
  static void give_back(void* data) {
    counter().held -= size_of(data);
    counter().below.raw_deallocate(data);
  }

  c10::Allocator* before_;
  int64_t held_before_;
};

}  // namespace lockstep::test
