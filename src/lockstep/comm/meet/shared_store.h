#pragma once
// A c10d::Store in a mapped file, for the ranks of one machine: no port, no server, safe from any thread.

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>

#include "lockstep/base/descriptor.h"

namespace lockstep::comm {

/// Every call is short and local; get() and wait() look again each millisecond until the timeout.
class SharedStore : public c10d::Store {
 public:
  /// Makes an empty store of an empty file. Null, with the reason in errno, where that fails.
  static c10::intrusive_ptr<SharedStore> create(base::Descriptor file);
  /// Opens the store that create() made in this file. Null where it cannot be mapped.
  static c10::intrusive_ptr<SharedStore> open(base::Descriptor file);

  struct Memory;
  explicit SharedStore(std::shared_ptr<const Memory> memory) : memory_(std::move(memory)) {}

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
  std::shared_ptr<const Memory> memory_;
};

}  // namespace lockstep::comm
