#pragma once
// A store on a port that anybody reaches: its values carry a seal of the job's, and one without is an error.

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <string>

#include "lockstep/base/libtorch.h"

namespace lockstep::comm {

/// Keys begin with a prefix of this job. Sealed are the values that are set; counters (add) are not.
class SealedStore : public c10d::PrefixStore {
 public:
  SealedStore(std::string secret, c10::intrusive_ptr<c10d::Store> store);

  using c10d::Store::compareSet;
  using c10d::Store::set;
  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  /// append, multiGet, multiSet: callers do without.
  bool hasExtendedApi() const override { return false; }

 private:
  std::vector<uint8_t> sealed(const std::string& key, const std::vector<uint8_t>& value) const;
  std::vector<uint8_t> opened(const std::string& key, const std::vector<uint8_t>& value) const;

  std::string secret_;
};

}  // namespace lockstep::comm
