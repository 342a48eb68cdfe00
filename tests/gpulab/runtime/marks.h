#pragma once
// A mark is one record of an event: a point in a stream's work that others wait for.

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>

namespace pretended {

struct Capture;
class Stream;

struct Mark {
  bool done = false;  // with `at` under marks.cpp's lock
  std::chrono::steady_clock::time_point at;
  int device = 0;
  std::weak_ptr<Stream> stream;  // that finishes it, when it has done so much
  unsigned long long position = 0;
  std::shared_ptr<Capture> capture;  // it was recorded in
  std::map<unsigned long long, size_t>
      seen;  // of each stream in the capture: how many nodes come before the mark
};
using MarkPtr = std::shared_ptr<Mark>;

void finish(const MarkPtr& mark);
bool is_done(const MarkPtr& mark);
/// Returns early when the process ends.
void wait_for(const MarkPtr& mark);
void wake_marks();

}  // namespace pretended
