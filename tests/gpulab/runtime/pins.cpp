#include "pins.h"

#include <map>
#include <mutex>

#include "../lab.h"

namespace {

struct Pins {
  std::mutex mutex;
  std::map<const char*, size_t> ranges;
};

Pins& pins() {
  static auto& all = *new Pins;
  return all;
}

}  // namespace

namespace pretended {

void pin(const void* pointer, size_t bytes) {
  const std::lock_guard lock(pins().mutex);
  pins().ranges[static_cast<const char*>(pointer)] = bytes;
}

bool unpin(const void* pointer) {
  const std::lock_guard lock(pins().mutex);
  return pins().ranges.erase(static_cast<const char*>(pointer)) > 0;
}

}  // namespace pretended

namespace lab {

bool pinned(const void* pointer) {
  const std::lock_guard lock(pins().mutex);
  auto found = pins().ranges.upper_bound(static_cast<const char*>(pointer));
  if (found == pins().ranges.begin()) return false;
  --found;
  return pointer < found->first + found->second;
}

}  // namespace lab
