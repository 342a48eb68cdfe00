#pragma once
// A c10d::Store in a file, for the ranks of one machine: no port, no server, safe from any thread.

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>

#include "lockstep/base/descriptor.h"

namespace lockstep::comm {

/// The file is a log. Each change appends one record, and the kernel decides the order of the records. Every
/// process applies the records in that order, so all have the same keys. get() and wait() read what is new
/// each millisecond until the timeout.
class SharedStore : public c10d::Store {
 public:
  /// The file is open for reading and writing. It is empty or has the records of other processes.
  explicit SharedStore(base::Descriptor file);

  using c10d::Store::set;
  // NOLINTNEXTLINE(modernize-use-override): older libtorchs have none of that name
  c10::intrusive_ptr<c10d::Store> clone();
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  class Log;
  explicit SharedStore(std::shared_ptr<Log> log) : log_(std::move(log)) {}

  std::shared_ptr<Log> log_;
};

}  // namespace lockstep::comm
