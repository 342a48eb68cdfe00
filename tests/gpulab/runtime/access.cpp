// LAB_GUARD=1: device memory may be touched only while somebody has said so.
#include <mutex>

#include "../lab.h"
#include "memory.h"
#include "settings.h"

namespace {

std::mutex& lock_of_accesses() {
  static auto& mutex = *new std::mutex;
  return mutex;
}
int accesses = 0;

bool guarded() {
  static const bool value = pretended::number("LAB_GUARD", 0) != 0;
  return value;
}

}  // namespace

namespace lab {

Access::Access() {
  if (!guarded()) return;
  const std::lock_guard lock(lock_of_accesses());
  if (accesses++ == 0) pretended::protect_memory(true);
}

Access::~Access() {
  if (!guarded()) return;
  const std::lock_guard lock(lock_of_accesses());
  if (--accesses == 0) pretended::protect_memory(false);
}

}  // namespace lab
