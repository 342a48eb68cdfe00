#pragma once
// One attempt's part of a store that outlives it, as torchrun's agent's does: what an attempt has set there,
// the next one never sees.

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <string>
#include <vector>

namespace lockstep::comm {

/// Keys begin with a prefix, as those of a PrefixStore do. NCCL's group looks beneath every PrefixStore for
/// the job's own store and tells of an error there ("exception_dump"), which would end each later attempt; it
/// takes this for that store.
class AttemptStore : public c10d::Store {
 public:
  AttemptStore(std::string prefix, c10::intrusive_ptr<c10d::Store> store);

  using c10d::Store::compareSet;
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
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  const std::chrono::milliseconds& getTimeout() const noexcept override;
  void setTimeout(const std::chrono::milliseconds& timeout) override;
  // of many keys at once: gloo's ranks find each other so
  void append(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<uint8_t>>& values) override;
  bool hasExtendedApi() const override;

 private:
  std::string prefix_;
  c10::intrusive_ptr<c10d::Store> outer_;
  c10::intrusive_ptr<c10d::PrefixStore> own_;
};

}  // namespace lockstep::comm
