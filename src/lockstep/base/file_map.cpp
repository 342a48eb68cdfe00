#include "lockstep/base/file_map.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::base {

// What the signal handler may look at.
struct MapSlot {
  std::atomic<uintptr_t> begin = 0, end = 0;  // 0: free
  std::atomic<int> protection = 0;
  std::atomic<bool> cut = false;
  const std::string* name = nullptr;  // under the mutex
};

namespace {

struct Maps {
  std::mutex mutex;
  std::array<MapSlot, 2048> slots;
  std::atomic<int> cuts = 0;
  struct sigaction before {};
  uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
};

Maps& maps() {
  static Maps all;
  return all;
}

MapSlot* slot_at(uintptr_t address) {
  for (auto& slot : maps().slots)
    if (address >= slot.begin.load() && address < slot.end.load()) return &slot;
  return nullptr;
}

// Zeros from the page that is gone to the map's end: the read goes on, and refuse_cut() tells.
bool fill_with_zeros(uintptr_t address) {
  auto* slot = slot_at(address);
  if (!slot) return false;
  const uintptr_t begin = address / maps().page * maps().page;
  void* const place = reinterpret_cast<void*>(begin);  // NOLINT(performance-no-int-to-ptr): a fault's address
  if (::mmap(place, slot->end.load() - begin, slot->protection.load(),
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
    return false;
  if (!slot->cut.exchange(true)) ++maps().cuts;
  return true;
}

void on_bus_error(int, siginfo_t* facts, void*) {
  const int error = errno;
  if (!fill_with_zeros(reinterpret_cast<uintptr_t>(facts->si_addr)))
    ::sigaction(SIGBUS, &maps().before,
                nullptr);  // the access comes again, and meets whoever was there before
  errno = error;
}

void watch_bus_errors() {
  static const bool installed = [] {
    struct sigaction ours {};
    ours.sa_sigaction = on_bus_error;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER;
    return ::sigaction(SIGBUS, &ours, &maps().before) == 0;
  }();
  std::ignore = installed;
}

MapSlot* take_slot(const void* data, size_t bytes, int protection, const std::string& name) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const std::lock_guard lock(maps().mutex);
  for (auto& slot : maps().slots) {
    if (slot.begin.load() != 0) continue;
    slot.cut = false;
    slot.protection = protection;
    slot.name = &name;
    slot.begin = begin;
    slot.end = begin + bytes;
    return &slot;
  }
  return nullptr;
}

void give_back(MapSlot& slot) {
  const std::lock_guard lock(maps().mutex);
  slot.end = 0;
  slot.begin = 0;
  slot.name = nullptr;
  if (slot.cut.exchange(false)) --maps().cuts;
}

[[noreturn]] void throw_cut(const std::string& name) {
  throw Error("the file became shorter while it was read", name,
              "leave a file alone while a run reads it; put it back, and start again");
}

}  // namespace

FileMap::FileMap(int file, int64_t offset, size_t bytes, int protection, int flags, std::string name)
    : name_(std::move(name)), bytes_(bytes) {
  watch_bus_errors();
  data_ = ::mmap(nullptr, bytes, protection, flags, file, offset);
  if (data_ == MAP_FAILED)
    throw Error(format("cannot map {} bytes: {}", bytes, std::strerror(errno)), name_,
                "ask for more memory, and look at the limit of ulimit -v");
  slot_ = take_slot(data_, bytes, protection, name_);
}

FileMap::~FileMap() {
  if (slot_) give_back(*slot_);
  ::munmap(data_, bytes_);
}

void FileMap::make_read_only() const {
  ::mprotect(data_, bytes_, PROT_READ);
  if (slot_) slot_->protection = PROT_READ;
}

bool FileMap::was_cut() const {
  return slot_ && slot_->cut.load();
}

void FileMap::refuse_cut() const {
  if (was_cut()) throw_cut(name_);
}

void refuse_cut_files() {
  if (maps().cuts.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(maps().mutex);
  for (const auto& slot : maps().slots)
    if (slot.name && slot.cut.load()) throw_cut(*slot.name);
}

}  // namespace lockstep::base
