// A c10d::Store in a file, for the ranks of one machine: no port, no server, safe from any thread.
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/rendezvous/private_folder.h"

namespace lockstep::comm {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(1);
constexpr uint64_t kRecord = 0x7265636f72640001;  // every record begins with it

std::string text_in(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::vector<uint8_t> bytes_in(const std::string& text) {
  return {text.begin(), text.end()};
}

// 0 if it is not a number: all processes apply every change, so none may throw.
int64_t number_in(const std::string& text) {
  return std::strtoll(text.c_str(), nullptr, 10);
}

// The file is a log. Each change appends one record, and the kernel decides the order of the records. Every
// process applies the records in that order, so all have the same keys. get() and wait() read what is new
// each millisecond until the timeout.
class SharedStore : public c10d::Store {
 public:
  explicit SharedStore(base::Descriptor file) : file_(std::move(file)) {
    ::fcntl(file_.number(), F_SETFL, O_APPEND);
    std::random_device random;
    writer_ = uint64_t{random()} << 32 | random();
  }

  using c10d::Store::set;
  // NOLINTNEXTLINE(modernize-use-override): older libtorchs have none of that name
  c10::intrusive_ptr<c10d::Store> clone() {
    return c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(this);
  }
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    change(kSet, key, text_in(value));
  }
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override {
    return bytes_in(change(kCompareSet, key, text_in(desired), text_in(expected)));
  }
  int64_t add(const std::string& key, int64_t amount) override {
    return number_in(change(kAdd, key, std::to_string(amount)));
  }
  bool deleteKey(const std::string& key) override { return !change(kDelete, key, "").empty(); }

  std::vector<uint8_t> get(const std::string& key) override {
    wait({key}, timeout_);
    const std::lock_guard guard(mutex_);
    const auto found = values_.find(key);
    if (found != values_.end()) return bytes_in(found->second);
    C10_THROW_ERROR(DistStoreError, "the key '" + key + "' was deleted while it was read");
  }
  bool check(const std::vector<std::string>& keys) override {
    const std::lock_guard guard(mutex_);
    update();
    return std::ranges::all_of(keys, [&](const auto& key) { return values_.contains(key); });
  }
  int64_t getNumKeys() override {
    const std::lock_guard guard(mutex_);
    update();
    return static_cast<int64_t>(values_.size());
  }

  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    base::AwakeTime awake;
    while (!check(keys)) {
      if (timeout != kNoTimeout && awake.passed() > timeout) {
        C10_THROW_ERROR(DistStoreError, "waited " + std::to_string(timeout.count()) +
                                            " ms for a key of the store, first '" + keys.front() + "'");
      }
      std::this_thread::sleep_for(kPoll);
    }
  }

 private:
  enum Kind : uint32_t { kSet, kAdd, kCompareSet, kDelete };

  struct Record {
    uint64_t begin = kRecord;
    uint64_t writer = 0, number = 0;  // together they name one change
    Kind kind = kSet;
    std::array<uint32_t, 3> bytes{};  // of key, value and expected value, which follow, and the number again
  };

  // The key's value afterwards: of kCompareSet what compareSet() returns, of kDelete "" where there was none.
  std::string change(Kind kind, const std::string& key, const std::string& value,
                     const std::string& expected = "") {
    const std::lock_guard guard(mutex_);
    // a forked process has the same writer_
    own_ = {.writer = writer_, .number = static_cast<uint64_t>(::getpid()) << 32 | ++changes_, .kind = kind};
    std::string bytes(sizeof own_, '\0');
    size_t part = 0;
    for (const auto* text : {&key, &value, &expected}) {
      own_.bytes[part++] = static_cast<uint32_t>(text->size());
      bytes += *text;
    }
    std::memcpy(bytes.data(), &own_, sizeof own_);
    bytes.append(reinterpret_cast<const char*>(&own_.number), sizeof own_.number);
    errno = ENOSPC;  // if only a part is written
    if (::write(file_.number(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      fail(format("cannot write to the job's store: {}", std::strerror(errno)));
    result_.reset();
    update();
    if (!result_) fail("the job's store has lost a record");
    return *result_;
  }

  [[noreturn]] static void fail(const std::string& what) {
    throw Error(what, "a file of this node",
                "free some space in TMPDIR, or set LOCKSTEP_RENDEZVOUS_DIR to another folder of this node");
  }

  // Applies the records that are complete. On a full disk a rank may write a part of a record: what follows
  // in the file cannot be read then.
  void update() {
    std::array<char, 1 << 16> buffer;
    for (ssize_t bytes; (bytes = ::pread(file_.number(), buffer.data(), buffer.size(), end_)) > 0;) {
      unread_.append(buffer.data(), static_cast<size_t>(bytes));
      end_ += bytes;
    }
    size_t at = 0;
    for (Record record; unread_.size() - at >= sizeof record;) {
      std::memcpy(&record, unread_.data() + at, sizeof record);
      const auto [key, value, expected] = record.bytes;
      const size_t texts = size_t{key} + value + expected, all = sizeof record + texts + sizeof record.number;
      const char* text = unread_.data() + at + sizeof record;
      if (record.begin == kRecord && unread_.size() - at < all) break;
      if (record.begin != kRecord || std::memcmp(text + texts, &record.number, sizeof record.number) != 0)
        fail("a record of the job's store is incomplete: a rank could not write all of it");
      auto result = apply(record.kind, {text, key}, {text + key, value}, {text + key + value, expected});
      if (record.writer == own_.writer && record.number == own_.number) result_ = std::move(result);
      at += all;
    }
    unread_.erase(0, at);
  }

  std::string apply(Kind kind, const std::string& key, std::string value, std::string expected) {
    const auto found = values_.find(key);
    const bool known = found != values_.end();
    switch (kind) {
      case kDelete:
        if (known) values_.erase(found);
        return known ? "deleted" : "";
      case kAdd:
        value = std::to_string(number_in(value) + (known ? number_in(found->second) : 0));
        break;
      case kCompareSet:  // as c10d's HashStore: a missing key is set when nothing was expected
        if (known ? found->second != expected : !expected.empty()) return known ? found->second : expected;
        break;
      case kSet:
        break;
    }
    return values_[key] = std::move(value);
  }

  base::Descriptor file_;
  std::mutex mutex_;
  uint64_t writer_ = 0, changes_ = 0;
  off_t end_ = 0;       // of what was read
  std::string unread_;  // the begin of a record that is being written
  std::map<std::string, std::string> values_;
  Record own_;  // this process's last change
  std::optional<std::string> result_;
};

}  // namespace

StorePtr shared_store(base::Descriptor file) {
  return c10::make_intrusive<SharedStore>(std::move(file));
}

}  // namespace lockstep::comm
