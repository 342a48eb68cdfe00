// A library whose rows were built for another lockstep: one of each kind, none of which may be touched.
#include <cstdlib>
#include <initializer_list>

extern "C" void lockstep_add_row(const char* abi, const char* kind, const char* name,
                                 void (*fill)(void* row));

namespace {

void never(void*) {
  std::abort();
}

const bool kAdded = [] {
  for (const char* kind : {"task", "model", "optimizer", "schedule", "comm hook", "kind of the future"})
    lockstep_add_row("lockstep plug-in 999, libtorch 9.9", kind, "other", never);
  return true;
}();

}  // namespace
