#include "lockstep/base/files/file_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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
  const FileMap* map = nullptr;  // under the mutex
};

namespace {

struct Maps {
  std::mutex mutex;
  std::array<MapSlot, 2048> slots;
  size_t used = 0;  // of the slots, once
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
  slot->cut = true;
  return true;
}

void on_bus_error(int, siginfo_t* facts, void*) {
  const int error = errno;
  const bool was_sent = facts->si_code <= 0;  // by a process: it has no address
  if (was_sent || !fill_with_zeros(reinterpret_cast<uintptr_t>(facts->si_addr))) {
    ::sigaction(SIGBUS, &maps().before,
                nullptr);  // an access comes again, and meets whoever was there before
    if (was_sent) ::raise(SIGBUS);
  }
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

MapSlot* take_slot(const FileMap& map, int protection) {
  const auto begin = reinterpret_cast<uintptr_t>(map.data());
  const std::lock_guard lock(maps().mutex);
  for (size_t i = 0; i < maps().slots.size(); ++i) {
    auto& slot = maps().slots[i];
    if (slot.begin.load() != 0) continue;
    slot.cut = false;
    slot.protection = protection;
    slot.map = &map;
    slot.begin = begin;
    slot.end = begin + map.size();
    maps().used = std::max(maps().used, i + 1);
    return &slot;
  }
  return nullptr;
}

void give_back(MapSlot& slot) {
  const std::lock_guard lock(maps().mutex);
  slot.end = 0;
  slot.begin = 0;
  slot.map = nullptr;
}

}  // namespace

FileMap::FileMap(int file, int64_t offset, size_t bytes, int protection, int flags, std::string name)
    : name_(std::move(name)), end_(offset + static_cast<int64_t>(bytes)), bytes_(bytes) {
  watch_bus_errors();
  if ((protection & PROT_WRITE) == 0) file_ = Descriptor(::fcntl(file, F_DUPFD_CLOEXEC, 0));
  data_ = ::mmap(nullptr, bytes, protection, flags, file, offset);
  if (data_ == MAP_FAILED)
    throw Error(format("cannot map {} bytes: {}", bytes, std::strerror(errno)), name_,
                "ask for more memory, and look at the limit of ulimit -v");
  slot_ = take_slot(*this, protection);
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
  if (slot_ && slot_->cut.load()) return true;
  struct stat facts {};
  return file_ && ::fstat(file_.number(), &facts) == 0 && facts.st_size < end_;
}

void FileMap::refuse_cut() const {
  if (!was_cut()) return;
  throw Error("the file became shorter while it was read, or its disk could not be read", name_,
              "leave a file alone while a run reads it; put it back, and start again");
}

void refuse_cut_files() {
  const std::lock_guard lock(maps().mutex);
  for (size_t i = 0; i < maps().used; ++i)
    if (const auto* map = maps().slots[i].map) map->refuse_cut();
}

}  // namespace lockstep::base
