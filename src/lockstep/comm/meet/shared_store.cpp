#include "lockstep/comm/meet/shared_store.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>
#include <string_view>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::comm {
namespace {

// The memory holds a Header and then records, one after the other. A changed value takes the old one's room
// where it fits, so that a counter does not fill the store; else it goes elsewhere, and the old record is
// marked dead. Nothing moves, so offsets stay true while a rank reads under the lock.
struct Header {
  pthread_mutex_t lock;
  uint64_t used;
};

struct Record {
  uint32_t live;
  uint32_t key_bytes;
  uint64_t value_bytes;
  uint64_t room;  // for a value
};

constexpr size_t kAlign = 16;
constexpr size_t kSmallest = 16;
constexpr int kLockSeconds = 10;
constexpr auto kPoll = std::chrono::milliseconds(1);

size_t aligned(size_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}
size_t record_bytes(size_t key, size_t room) {
  return aligned(sizeof(Record) + key + room);
}
// with room to grow, as a counter does
size_t room_for(size_t value) {
  return std::max<size_t>(value, kSmallest);
}
Header& header(const StoreMemory& memory) {
  return *static_cast<Header*>(memory.data.get());
}
[[noreturn]] void refuse_more(const std::string& why) {
  throw Error("the job's store is full: " + why, "shared memory of this node",
              "it holds the ranks' addresses; keep other data out of it");
}
// Without this a full disk would be a SIGBUS at the first touch.
void take_room(const StoreMemory& memory, size_t from, size_t bytes) {
  if (!memory.file) return;
  const int code =
      ::posix_fallocate(memory.file->number(), static_cast<off_t>(from), static_cast<off_t>(bytes));
  if (code != 0) refuse_more(std::strerror(code));
}

// A rank that died with the lock in hand leaves it to the next one; a stopped rank makes this an error.
class Lock {
 public:
  explicit Lock(Header& header) : lock_(header.lock) {
    timespec until{};
    ::clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += kLockSeconds;
    const int code = ::pthread_mutex_timedlock(&lock_, &until);
    if (code == EOWNERDEAD) ::pthread_mutex_consistent(&lock_);
    if (code != 0 && code != EOWNERDEAD) {
      throw Error(format("the job's store is locked: {}", std::strerror(code)), "shared memory of this node",
                  "a rank of this job was stopped in the middle of joining");
    }
  }
  ~Lock() { ::pthread_mutex_unlock(&lock_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t& lock_;
};

// What one holder of the lock may do.
class Arena {
 public:
  explicit Arena(const StoreMemory& memory)
      : memory_(memory),
        base_(static_cast<std::byte*>(memory.data.get())),
        header_(header(memory)),
        lock_(header_) {}

  std::optional<std::vector<uint8_t>> find(std::string_view key) {
    Record* record = locate(key);
    if (!record) return std::nullopt;
    const uint8_t* value = value_of(*record);
    return std::vector<uint8_t>(value, value + record->value_bytes);
  }

  bool erase(std::string_view key) {
    Record* record = locate(key);
    if (record) record->live = 0;
    return record != nullptr;
  }

  void put(std::string_view key, const std::vector<uint8_t>& value) {
    Record* record = locate(key);
    if (record && value.size() <= record->room) return fill(*record, value);
    if (record) record->live = 0;
    if (Record* free = each([&](Record& dead, std::string_view name) {
          return !dead.live && name.size() == key.size() && value.size() <= dead.room;
        })) {
      std::memcpy(free + 1, key.data(), key.size());
      free->live = 1;
      return fill(*free, value);
    }
    const size_t room = room_for(value.size());
    const size_t bytes = record_bytes(key.size(), room);
    if (header_.used + bytes > memory_.size) refuse_more(format("it has {} bytes", memory_.size));
    take_room(memory_, header_.used, bytes);
    record = reinterpret_cast<Record*>(base_ + header_.used);
    *record = {1, static_cast<uint32_t>(key.size()), 0, room};
    std::memcpy(record + 1, key.data(), key.size());
    fill(*record, value);
    header_.used += bytes;
  }

  int64_t live() {
    int64_t count = 0;
    each([&](Record& record, std::string_view) {
      count += record.live;
      return false;
    });
    return count;
  }

 private:
  static uint8_t* value_of(Record& record) {
    return reinterpret_cast<uint8_t*>(&record + 1) + record.key_bytes;
  }

  static void fill(Record& record, const std::vector<uint8_t>& value) {
    if (!value.empty()) std::memcpy(value_of(record), value.data(), value.size());
    record.value_bytes = value.size();
  }

  template <class F>
  Record* each(F&& stop_at) {
    for (size_t at = aligned(sizeof(Header)); at < header_.used;) {
      Record& record = *reinterpret_cast<Record*>(base_ + at);
      if (stop_at(record, {reinterpret_cast<const char*>(&record + 1), record.key_bytes})) return &record;
      at += record_bytes(record.key_bytes, record.room);
    }
    return nullptr;
  }

  Record* locate(std::string_view key) {
    return each([&](Record& record, std::string_view name) { return record.live && name == key; });
  }

  const StoreMemory& memory_;
  std::byte* base_;
  Header& header_;
  Lock lock_;
};

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

}  // namespace

size_t SharedStore::bytes_for(int world) {
  const auto ranks = static_cast<size_t>(world);
  return (size_t{256} << 10) + ranks * ranks * 512;
}

c10::intrusive_ptr<SharedStore> SharedStore::create(StoreMemory memory) {
  take_room(memory, 0, aligned(sizeof(Header)));
  Header& top = header(memory);
  pthread_mutexattr_t kind;
  ::pthread_mutexattr_init(&kind);
  ::pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&top.lock, &kind);
  ::pthread_mutexattr_destroy(&kind);
  top.used = aligned(sizeof(Header));
  return join(std::move(memory));
}

c10::intrusive_ptr<SharedStore> SharedStore::join(StoreMemory memory) {
  return c10::make_intrusive<SharedStore>(std::move(memory));
}

c10::intrusive_ptr<c10d::Store> SharedStore::clone() {
  return join(memory_);
}

void SharedStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  Arena(memory_).put(key, value);
}

std::vector<uint8_t> SharedStore::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                             const std::vector<uint8_t>& desired) {
  Arena arena(memory_);
  const auto now = arena.find(key);
  // as c10d's HashStore: a missing key is set when nothing was expected
  if (!now && !expected.empty()) return expected;
  if (now && *now != expected) return *now;
  arena.put(key, desired);
  return desired;
}

std::vector<uint8_t> SharedStore::get(const std::string& key) {
  wait({key}, timeout_);
  auto value = Arena(memory_).find(key);
  if (!value) C10_THROW_ERROR(DistStoreError, "the key '" + key + "' was deleted while it was read");
  return *value;
}

int64_t SharedStore::add(const std::string& key, int64_t amount) {
  Arena arena(memory_);
  const auto now = arena.find(key);
  const int64_t sum = amount + (now ? std::stoll(std::string(now->begin(), now->end())) : 0);
  arena.put(key, bytes_of(std::to_string(sum)));
  return sum;
}

bool SharedStore::deleteKey(const std::string& key) {
  return Arena(memory_).erase(key);
}

bool SharedStore::check(const std::vector<std::string>& keys) {
  Arena arena(memory_);
  for (const auto& key : keys) {
    if (!arena.find(key)) return false;
  }
  return true;
}

int64_t SharedStore::getNumKeys() {
  return Arena(memory_).live();
}

void SharedStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  base::AwakeTime awake;
  while (!check(keys)) {
    if (timeout != kNoTimeout && awake.passed() > timeout) {
      C10_THROW_ERROR(DistStoreError, "waited " + std::to_string(timeout.count()) +
                                          " ms for a key of the store, first '" + keys.front() + "'");
    }
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace lockstep::comm
