#include "lockstep/base/local_gradients.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "lockstep/base/format.h"

namespace lockstep::base {
namespace {

struct LocalGradient {
  const void* gradient;
  std::string name;
};

struct LocalGradients {
  std::mutex mutex;  // a model on several GPUs has a thread for each
  std::unordered_map<const void*, LocalGradient> of;
  std::unordered_map<const void*, int> watches;
  std::atomic<size_t> count = 0;
};

LocalGradients& local_gradients() {
  static LocalGradients all;
  return all;
}

}  // namespace

void watch_gradient(const void* parameter) {
  auto& all = local_gradients();
  const std::lock_guard lock(all.mutex);
  if (++all.watches[parameter] > 1) all.of.erase(parameter);
  all.count = all.of.size();
}

void unwatch_gradient(const void* parameter) {
  auto& all = local_gradients();
  const std::lock_guard lock(all.mutex);
  if (--all.watches[parameter] == 0) all.watches.erase(parameter);
  all.of.erase(parameter);
  all.count = all.of.size();
}

void mark_local_gradient(const void* parameter, const void* gradient, const std::string& name) {
  auto& all = local_gradients();
  const std::lock_guard lock(all.mutex);
  if (all.watches[parameter] > 1) return;
  all.of.insert_or_assign(parameter, LocalGradient{gradient, name});
  all.count = all.of.size();
}

void unmark_local_gradient(const void* parameter) {
  auto& all = local_gradients();
  const std::lock_guard lock(all.mutex);
  all.of.erase(parameter);
  all.count = all.of.size();
}

bool is_marked_local(const void* parameter) {
  auto& all = local_gradients();
  const std::lock_guard lock(all.mutex);
  return all.of.contains(parameter);
}

bool has_local_gradients() {
  return local_gradients().count.load(std::memory_order_relaxed) > 0;
}

std::string local_gradient(const void* parameter, const void* gradient) {
  auto& all = local_gradients();
  const std::lock_guard lock(all.mutex);
  const auto found = all.of.find(parameter);
  return found != all.of.end() && found->second.gradient == gradient ? found->second.name : "";
}

std::string first_of(const std::vector<std::string>& names) {
  return format("'{}'{}", names.front(), names.size() > 1 ? format(" and {} more", names.size() - 1) : "");
}

}  // namespace lockstep::base
