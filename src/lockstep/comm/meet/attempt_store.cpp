#include "lockstep/comm/meet/attempt_store.h"

#include <utility>

namespace lockstep::comm {
namespace {

// A connection of its own, in libtorchs whose stores have clone().
template <class StorePointer>
StorePointer copy_of(const StorePointer& store) {
  if constexpr (requires { store->clone(); }) {
    return store->clone();
  } else {
    return store;
  }
}

}  // namespace

AttemptStore::AttemptStore(std::string prefix, c10::intrusive_ptr<c10d::Store> store)
    : prefix_(std::move(prefix)),
      outer_(std::move(store)),
      own_(c10::make_intrusive<c10d::PrefixStore>(prefix_, outer_)) {}

c10::intrusive_ptr<c10d::Store> AttemptStore::clone() {
  return c10::make_intrusive<AttemptStore>(prefix_, copy_of(outer_));
}

void AttemptStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  own_->set(key, value);
}

std::vector<uint8_t> AttemptStore::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                              const std::vector<uint8_t>& desired) {
  return own_->compareSet(key, expected, desired);
}

std::vector<uint8_t> AttemptStore::get(const std::string& key) {
  return own_->get(key);
}

int64_t AttemptStore::add(const std::string& key, int64_t amount) {
  return own_->add(key, amount);
}

bool AttemptStore::deleteKey(const std::string& key) {
  return own_->deleteKey(key);
}

bool AttemptStore::check(const std::vector<std::string>& keys) {
  return own_->check(keys);
}

int64_t AttemptStore::getNumKeys() {
  return own_->getNumKeys();
}

void AttemptStore::wait(const std::vector<std::string>& keys) {
  own_->wait(keys);
}

void AttemptStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  own_->wait(keys, timeout);
}

const std::chrono::milliseconds& AttemptStore::getTimeout() const noexcept {
  return own_->getTimeout();
}

void AttemptStore::setTimeout(const std::chrono::milliseconds& timeout) {
  own_->setTimeout(timeout);
}

void AttemptStore::append(const std::string& key, const std::vector<uint8_t>& value) {
  own_->append(key, value);
}

std::vector<std::vector<uint8_t>> AttemptStore::multiGet(const std::vector<std::string>& keys) {
  return own_->multiGet(keys);
}

void AttemptStore::multiSet(const std::vector<std::string>& keys,
                            const std::vector<std::vector<uint8_t>>& values) {
  own_->multiSet(keys, values);
}

bool AttemptStore::hasExtendedApi() const {
  return own_->hasExtendedApi();
}

}  // namespace lockstep::comm
