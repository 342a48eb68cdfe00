#include "lockstep/comm/meet/sealed_store.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/format.h"
#include "lockstep/comm/meet/copy_of_store.h"
#include "lockstep/comm/meet/secret.h"

namespace lockstep::comm {
namespace {

constexpr size_t kSealBytes = 64;

std::string text_of(const std::vector<uint8_t>& value) {
  return {value.begin(), value.end()};
}

}  // namespace

SealedStore::SealedStore(std::string secret, c10::intrusive_ptr<c10d::Store> store)
    : secret_(std::move(secret)),
      outer_(std::move(store)),
      values_(c10::make_intrusive<c10d::PrefixStore>(seal(secret_, {"values"}), outer_)),
      counts_(c10::make_intrusive<c10d::PrefixStore>(seal(secret_, {"counts"}), outer_)) {}

c10::intrusive_ptr<c10d::Store> SealedStore::clone() {
  return c10::make_intrusive<SealedStore>(secret_, copy_of(outer_));
}

void SealedStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  values_->set(key, sealed(key, value));
}

std::vector<uint8_t> SealedStore::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                             const std::vector<uint8_t>& desired) {
  const auto before = expected.empty() ? expected : sealed(key, expected);
  const auto now = values_->compareSet(key, before, sealed(key, desired));
  return now.empty() || now == before ? expected : opened(key, now);
}

std::vector<uint8_t> SealedStore::get(const std::string& key) {
  if (counts_->check({key})) return counts_->get(key);
  return opened(key, values_->get(key));
}

int64_t SealedStore::add(const std::string& key, int64_t amount) {
  return counts_->add(key, amount);
}

bool SealedStore::deleteKey(const std::string& key) {
  const bool counted = counts_->deleteKey(key);
  return values_->deleteKey(key) || counted;
}

bool SealedStore::check(const std::vector<std::string>& keys) {
  return values_->check(keys) || std::all_of(keys.begin(), keys.end(), [this](const auto& key) {
           return counts_->check({key}) || values_->check({key});
         });
}

int64_t SealedStore::getNumKeys() {
  return outer_->getNumKeys();
}

void SealedStore::wait(const std::vector<std::string>& keys) {
  wait(keys, getTimeout());
}

// For what is set: nobody waits for a counter.
void SealedStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  values_->wait(keys, timeout);
}

const std::chrono::milliseconds& SealedStore::getTimeout() const noexcept {
  return outer_->getTimeout();
}

void SealedStore::setTimeout(const std::chrono::milliseconds& timeout) {
  outer_->setTimeout(timeout);
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
  C10_THROW_ERROR(DistStoreError,
                  format("the value of '{}' in the job's store was not set by a rank of this job", key));
}

}  // namespace lockstep::comm
