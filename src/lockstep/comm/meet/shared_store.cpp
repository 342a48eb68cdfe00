#include "lockstep/comm/meet/shared_store.h"

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
#include <string_view>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::comm {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(1);

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

}  // namespace

class SharedStore::Log {
 public:
  enum Kind : uint32_t { kSet, kAdd, kCompareSet, kDelete };
  using Values = std::map<std::string, std::string>;

  explicit Log(base::Descriptor opened) : file_(std::move(opened)) {
    ::fcntl(file_.number(), F_SETFL, O_APPEND);
    std::random_device random;
    writer_ = uint64_t{random()} << 32 | random();
  }

  // Calls read() with the newest values.
  template <class Read>
  auto read(const Read& read) {
    const std::lock_guard guard(mutex_);
    update();
    return read(values_);
  }

  // The key's value afterwards: of kCompareSet what compareSet() returns, of kDelete "" where there was none.
  std::string change(Kind kind, const std::string& key, const std::string& value,
                     const std::string& expected = "") {
    const std::lock_guard guard(mutex_);
    // a forked process has the same writer_
    Record record{writer_, static_cast<uint64_t>(::getpid()) << 32 | ++changes_, kind, {}};
    std::string bytes(sizeof record, '\0');
    size_t part = 0;
    for (const auto* text : {&key, &value, &expected}) {
      record.bytes[part++] = static_cast<uint32_t>(text->size());
      bytes += *text;
    }
    std::memcpy(bytes.data(), &record, sizeof record);
    errno = ENOSPC;  // if only a part is written
    if (::write(file_.number(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      fail(std::strerror(errno));
    own_ = record;
    result_.reset();
    update();
    if (!result_) fail("it is damaged");
    return *result_;
  }

 private:
  struct Record {
    uint64_t writer = 0, number = 0;  // together they name one change
    Kind kind = kSet;
    std::array<uint32_t, 3> bytes{};  // of key, value and expected value, which follow
  };

  [[noreturn]] static void fail(const std::string& why) {
    throw Error(format("cannot write to the job's store: {}", why), "a file of this node",
                "free some space in TMPDIR, or set LOCKSTEP_RENDEZVOUS_DIR to another folder of this node");
  }

  // Applies the records that are complete.
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
      const size_t all = sizeof record + key + value + expected;
      if (unread_.size() - at < all) break;
      const char* text = unread_.data() + at + sizeof record;
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
  Values values_;
  Record own_;  // this process's last change
  std::optional<std::string> result_;
};

SharedStore::SharedStore(base::Descriptor file) : log_(std::make_shared<Log>(std::move(file))) {}

c10::intrusive_ptr<c10d::Store> SharedStore::clone() {
  return c10::intrusive_ptr<SharedStore>::unsafe_steal_from_new(new SharedStore(log_));
}

void SharedStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  log_->change(Log::kSet, key, text_in(value));
}

std::vector<uint8_t> SharedStore::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                             const std::vector<uint8_t>& desired) {
  return bytes_in(log_->change(Log::kCompareSet, key, text_in(desired), text_in(expected)));
}

std::vector<uint8_t> SharedStore::get(const std::string& key) {
  wait({key}, timeout_);
  return log_->read([&](const Log::Values& values) {
    const auto found = values.find(key);
    if (found != values.end()) return bytes_in(found->second);
    C10_THROW_ERROR(DistStoreError, "the key '" + key + "' was deleted while it was read");
  });
}

int64_t SharedStore::add(const std::string& key, int64_t amount) {
  return number_in(log_->change(Log::kAdd, key, std::to_string(amount)));
}

bool SharedStore::deleteKey(const std::string& key) {
  return !log_->change(Log::kDelete, key, "").empty();
}

bool SharedStore::check(const std::vector<std::string>& keys) {
  return log_->read([&](const Log::Values& values) {
    return std::ranges::all_of(keys, [&](const auto& key) { return values.contains(key); });
  });
}

int64_t SharedStore::getNumKeys() {
  return log_->read([](const Log::Values& values) { return static_cast<int64_t>(values.size()); });
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
