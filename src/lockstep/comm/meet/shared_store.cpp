#include "lockstep/comm/meet/shared_store.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

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

// The file holds a Header and then records, one after the other. A changed value takes the old one's room
// where it fits, so that a counter does not fill the store; otherwise it goes elsewhere, and the old record
// is marked dead. Nothing moves, so offsets stay true while a rank reads under the lock.
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

constexpr size_t kBytes = size_t{256} << 20;  // of addresses; the disk gives what is used
constexpr size_t kAlign = 16;
constexpr size_t kSmallest = 16;  // with room to grow, as a counter does
constexpr int kLockSeconds = 10;
constexpr auto kPoll = std::chrono::milliseconds(1);

size_t aligned(size_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

size_t record_bytes(size_t key, size_t room) {
  return aligned(sizeof(Record) + key + room);
}

[[noreturn]] void refuse_more(const std::string& why) {
  throw Error("the job's store is full: " + why, "a file of this node",
              "it holds the ranks' addresses; keep other data out of it");
}

}  // namespace

struct SharedStore::Memory {
  explicit Memory(base::Descriptor opened)
      : file(std::move(opened)),
        data(static_cast<std::byte*>(
            ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0))) {}
  ~Memory() {
    if (data != MAP_FAILED) ::munmap(data, kBytes);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Header& header() const { return *reinterpret_cast<Header*>(data); }
  // Without this a full disk would be a SIGBUS at the first touch.
  void take_room(size_t from, size_t bytes) const {
    const int code = ::posix_fallocate(file.number(), static_cast<off_t>(from), static_cast<off_t>(bytes));
    if (code != 0) refuse_more(std::strerror(code));
  }

  base::Descriptor file;
  std::byte* data;
};

namespace {

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
      throw Error(format("the job's store is locked: {}", std::strerror(code)), "a file of this node",
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
  explicit Arena(const SharedStore::Memory& memory)
      : memory_(memory), header_(memory.header()), lock_(header_) {}

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
    const size_t room = std::max(value.size(), kSmallest);
    const size_t bytes = record_bytes(key.size(), room);
    if (header_.used + bytes > kBytes) refuse_more(format("it has {} bytes", kBytes));
    memory_.take_room(header_.used, bytes);
    record = reinterpret_cast<Record*>(memory_.data + header_.used);
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
      Record& record = *reinterpret_cast<Record*>(memory_.data + at);
      if (stop_at(record, {reinterpret_cast<const char*>(&record + 1), record.key_bytes})) return &record;
      at += record_bytes(record.key_bytes, record.room);
    }
    return nullptr;
  }

  Record* locate(std::string_view key) {
    return each([&](Record& record, std::string_view name) { return record.live && name == key; });
  }

  const SharedStore::Memory& memory_;
  Header& header_;
  Lock lock_;
};

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

}  // namespace

c10::intrusive_ptr<SharedStore> SharedStore::create(base::Descriptor file) {
  if (::ftruncate(file.number(), kBytes) != 0) return {};
  auto store = open(std::move(file));
  if (!store) return {};
  if (const int code = ::posix_fallocate(store->memory_->file.number(), 0, sizeof(Header)); code != 0) {
    errno = code;
    return {};
  }
  Header& header = store->memory_->header();
  pthread_mutexattr_t kind;
  ::pthread_mutexattr_init(&kind);
  ::pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&header.lock, &kind);
  ::pthread_mutexattr_destroy(&kind);
  header.used = aligned(sizeof(Header));
  return store;
}

c10::intrusive_ptr<SharedStore> SharedStore::open(base::Descriptor file) {
  auto memory = std::make_shared<const Memory>(std::move(file));
  if (memory->data == MAP_FAILED) return {};
  return c10::make_intrusive<SharedStore>(std::move(memory));
}

c10::intrusive_ptr<c10d::Store> SharedStore::clone() {
  return c10::make_intrusive<SharedStore>(memory_);
}

void SharedStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  Arena(*memory_).put(key, value);
}

std::vector<uint8_t> SharedStore::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                             const std::vector<uint8_t>& desired) {
  Arena arena(*memory_);
  const auto now = arena.find(key);
  // as c10d's HashStore: a missing key is set when nothing was expected
  if (!now && !expected.empty()) return expected;
  if (now && *now != expected) return *now;
  arena.put(key, desired);
  return desired;
}

std::vector<uint8_t> SharedStore::get(const std::string& key) {
  wait({key}, timeout_);
  auto value = Arena(*memory_).find(key);
  if (!value) C10_THROW_ERROR(DistStoreError, "the key '" + key + "' was deleted while it was read");
  return *value;
}

int64_t SharedStore::add(const std::string& key, int64_t amount) {
  Arena arena(*memory_);
  const auto now = arena.find(key);
  const int64_t sum = amount + (now ? std::stoll(std::string(now->begin(), now->end())) : 0);
  arena.put(key, bytes_of(std::to_string(sum)));
  return sum;
}

bool SharedStore::deleteKey(const std::string& key) {
  return Arena(*memory_).erase(key);
}

bool SharedStore::check(const std::vector<std::string>& keys) {
  Arena arena(*memory_);
  for (const auto& key : keys) {
    if (!arena.find(key)) return false;
  }
  return true;
}

int64_t SharedStore::getNumKeys() {
  return Arena(*memory_).live();
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
