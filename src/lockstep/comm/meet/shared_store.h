#pragma once
// A c10d::Store in shared memory, for jobs of one node: no port, no server, safe from any thread.

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>

#include "lockstep/base/descriptor.h"

namespace lockstep::comm {

/// Memory that ranks share. Where it is a file whose room the disk has not given yet, that file.
struct StoreMemory {
  std::shared_ptr<void> data;
  size_t size = 0;
  std::shared_ptr<base::Descriptor> file = nullptr;
};

/// Every call is short and local; get() and wait() look again each millisecond until the timeout.
class SharedStore : public c10d::Store {
 public:
  /// Room for `world` ranks' addresses of each other.
  static size_t bytes_for(int world);
  /// The owner's: lays an empty store into the memory.
  static c10::intrusive_ptr<SharedStore> create(StoreMemory memory);
  /// The others': joins the store that create() laid there.
  static c10::intrusive_ptr<SharedStore> join(StoreMemory memory);

  explicit SharedStore(StoreMemory memory) : memory_(std::move(memory)) {}

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
  StoreMemory memory_;
};

}  // namespace lockstep::comm
