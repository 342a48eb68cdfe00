#pragma once
// A store on a port that anybody reaches: its values carry a seal of the job's, and one without is an error.

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <string>
#include <vector>

namespace lockstep::comm {

/// Keys begin with a prefix of this job. Sealed are the values that are set; what add() counts is a number
/// under keys of its own, and is not.
class SealedStore : public c10d::Store {
 public:
  SealedStore(std::string secret, c10::intrusive_ptr<c10d::Store> store);

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

 private:
  std::vector<uint8_t> sealed(const std::string& key, const std::vector<uint8_t>& value) const;
  std::vector<uint8_t> opened(const std::string& key, const std::vector<uint8_t>& value) const;

  std::string secret_;
  c10::intrusive_ptr<c10d::Store> outer_;  // without our prefixes
  c10::intrusive_ptr<c10d::PrefixStore> values_, counts_;
};

}  // namespace lockstep::comm
