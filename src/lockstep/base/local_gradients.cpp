#include "lockstep/base/local_gradients.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "lockstep/base/error.h"
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
  std::atomic<size_t> count = 0;
};

LocalGradients& local_gradients() {
  static LocalGradients all;
  return all;
}

}  // namespace

void mark_local_gradient(const void* parameter, const void* gradient, const std::string& name) {
  auto& all = local_gradients();
  const std::lock_guard lock(all.mutex);
  all.of.insert_or_assign(parameter, LocalGradient{gradient, name});
  all.count = all.of.size();
}

void unmark_local_gradient(const void* parameter) {
  auto& all = local_gradients();
  const std::lock_guard lock(all.mutex);
  all.of.erase(parameter);
  all.count = all.of.size();
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

void refuse_local_gradients(const std::vector<std::string>& names, const std::string& what,
                            const std::string& where) {
  const auto others = names.size() > 1 ? format(" and {} more", names.size() - 1) : "";
  throw Error(
      format("{} '{}'{} with gradients of this rank alone: a backward that was not exchanged made them", what,
             names.front(), others),
      where,
      "call the model that ddp() gave, not its module(), once before each backward; where gradients are "
      "meant "
      "to stay local, hold model->no_sync()");
}

}  // namespace lockstep::base
