#include "lockstep/comm/meet/sealed_store.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/format.h"
#include "lockstep/comm/meet/secret.h"

namespace lockstep::comm {
namespace {

constexpr size_t kSealBytes = 64;

std::string text_of(const std::vector<uint8_t>& value) {
  return {value.begin(), value.end()};
}

}  // namespace

SealedStore::SealedStore(std::string secret, c10::intrusive_ptr<c10d::Store> store)
    : PrefixStore(seal(secret, {"keys"}), std::move(store)), secret_(std::move(secret)) {}

c10::intrusive_ptr<c10d::Store> SealedStore::clone() {
  return c10::make_intrusive<SealedStore>(secret_, store_->clone());
}

void SealedStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  PrefixStore::set(key, sealed(key, value));
}

std::vector<uint8_t> SealedStore::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                             const std::vector<uint8_t>& desired) {
  const auto before = expected.empty() ? expected : sealed(key, expected);
  const auto now = PrefixStore::compareSet(key, before, sealed(key, desired));
  return now.empty() || now == before ? expected : opened(key, now);
}

std::vector<uint8_t> SealedStore::get(const std::string& key) {
  return opened(key, PrefixStore::get(key));
}

// The same value under the same key has the same seal, so that compareSet may compare.
std::vector<uint8_t> SealedStore::sealed(const std::string& key, const std::vector<uint8_t>& value) const {
  const auto mark = seal(secret_, {"value", key, text_of(value)});
  std::vector<uint8_t> whole(mark.begin(), mark.end());
  whole.insert(whole.end(), value.begin(), value.end());
  return whole;
}

std::vector<uint8_t> SealedStore::opened(const std::string& key, const std::vector<uint8_t>& value) const {
  const auto whole = text_of(value);
  const auto rest = whole.substr(std::min(kSealBytes, whole.size()));
  if (is_same_seal(whole.substr(0, kSealBytes), seal(secret_, {"value", key, rest})))
    return {rest.begin(), rest.end()};
  // what add() keeps is a number, and may be read
  if (!whole.empty() && whole.size() < kSealBytes &&
      whole.find_first_not_of("-0123456789") == std::string::npos)
    return value;
  C10_THROW_ERROR(DistStoreError,
                  format("the value of '{}' in the job's store was not set by a rank of this job", key));
}

}  // namespace lockstep::comm
