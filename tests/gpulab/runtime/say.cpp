// Messages of the laboratory. Nothing here is ever destroyed: threads may speak while the process ends.
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "../lab.h"
#include "settings.h"

namespace lab {

void say(const char* format, ...) {
  static auto& mutex = *new std::mutex;
  static auto& said = *new std::set<std::string>;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const std::lock_guard lock(mutex);
  if (said.insert(text).second && !pretended::text("LAB_QUIET"))
    std::fprintf(stderr, "[gpulab %d] %s\n", ::getpid(), text);
}

}  // namespace lab
