#include "marks.h"

#include <condition_variable>
#include <mutex>

#include "lifetime.h"
#include "streams.h"

namespace pretended {
namespace {

std::mutex& lock_of_marks() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

std::condition_variable& changed() {
  static auto& condition = *new std::condition_variable;
  return condition;
}

}  // namespace

void finish(const MarkPtr& mark) {
  {
    const std::lock_guard lock(lock_of_marks());
    mark->done = true;
    mark->at = std::chrono::steady_clock::now();
  }
  changed().notify_all();
}

bool is_done(const MarkPtr& mark) {
  const std::lock_guard lock(lock_of_marks());
  return mark->done;
}

void wait_for(const MarkPtr& mark) {
  if (const auto stream = mark->stream.lock()) stream->demand(mark->position);
  std::unique_lock lock(lock_of_marks());
  changed().wait(lock, [&] { return mark->done || ended(); });
}

void wake_marks() {
  { const std::lock_guard lock(lock_of_marks()); }
  changed().notify_all();
}

}  // namespace pretended
