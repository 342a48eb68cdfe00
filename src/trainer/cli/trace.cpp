// The stack trace of an error, with LOCKSTEP_TRACE=1.
#include <c10/util/Backtrace.h>
#include <dlfcn.h>

#include <cstdlib>

#include "trainer/cli/failure.h"

namespace lockstep::cli {
namespace {

thread_local c10::Backtrace last_throw;  // looks up the names only when they are printed

bool tracing() {
  static const bool on = [] {
    const char* value = std::getenv("LOCKSTEP_TRACE");
    return value && std::string(value) == "1";
  }();
  return on;
}

}  // namespace

std::string last_trace() {
  return last_throw ? "\n" + last_throw->get() : "";
}

}  // namespace lockstep::cli

// Every throw of the program and its libraries passes through here on its way to the C++ runtime. The stack
// is gone once an exception is caught, so it is recorded before the throw (Itanium C++ ABI, 2.4.3). The
// symbol is named by hand, because compilers differ in how they declare the function.
extern "C" [[noreturn]] void traced_throw(void* thrown, void* type,
                                          void (*destroy)(void*)) __asm__("__cxa_throw");

extern "C" void traced_throw(void* thrown, void* type, void (*destroy)(void*)) {
  using Throw = void (*)(void*, void*, void (*)(void*));
  static const auto real = reinterpret_cast<Throw>(dlsym(RTLD_NEXT, "__cxa_throw"));
  if (lockstep::cli::tracing()) lockstep::cli::last_throw = c10::get_lazy_backtrace(1);
  real(thrown, type, destroy);
  std::abort();  // real does not return
}
