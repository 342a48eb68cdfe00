#pragma once
// The objects behind CUDA's handles: a handle that is not, or no longer, one finds nothing.

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace pretended {

template <class Object>
class Handles {
 public:
  template <class Handle>
  Handle add(std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    Object* address = object.get();
    objects_.emplace(address, std::move(object));
    return reinterpret_cast<Handle>(address);
  }
  std::shared_ptr<Object> find(const void* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }
  std::shared_ptr<Object> remove(const void* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    if (found == objects_.end()) return nullptr;
    auto object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, std::shared_ptr<Object>> objects_;
};

}  // namespace pretended
