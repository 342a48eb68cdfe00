// Counts of what happened, so that a test sees that work really went through the laboratory. LAB_COUNTS=FILE
// has them written to FILE.<pid> when the process ends.
#include <unistd.h>

#include <cstdio>
#include <map>
#include <mutex>
#include <string>

#include "../lab.h"
#include "settings.h"

namespace {

struct Counts {
  std::mutex mutex;
  std::map<std::string, long> of;
  pid_t owner = 0;
};
Counts* made = nullptr;  // none in a process that counts nothing

Counts& counts() {
  static Counts& all = *(made = new Counts);
  return all;
}

__attribute__((destructor)) void write_counts() {
  const char* file = pretended::text("LAB_COUNTS");
  if (!file || !made || made->owner != ::getpid()) return;
  const std::string path = std::string(file) + "." + std::to_string(made->owner);
  std::FILE* out = std::fopen(path.c_str(), "w");
  if (!out) return lab::say("cannot write the counts to %s", path.c_str());
  for (const auto& [name, number] : made->of) std::fprintf(out, "%s %ld\n", name.c_str(), number);
  std::fclose(out);
}

}  // namespace

namespace lab {

void count(const char* what) {
  Counts& all = counts();
  const std::lock_guard lock(all.mutex);
  if (const pid_t self = ::getpid(); all.owner != self) {  // a child begins at nothing
    all.of.clear();
    all.owner = self;
  }
  ++all.of[what];
}

}  // namespace lab

extern "C" long lab_count(const char* what) {
  Counts& all = counts();
  const std::lock_guard lock(all.mutex);
  const auto found = all.of.find(what);
  return found == all.of.end() || all.owner != ::getpid() ? 0 : found->second;
}
