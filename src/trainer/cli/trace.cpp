// The stack trace of an error, with LOCKSTEP_TRACE=1.
#include "trainer/cli/failure.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <array>
#include <cstdlib>
#include <memory>

#include "lockstep/base/format.h"

namespace lockstep::cli {
namespace {

constexpr int kDepth = 64;

struct Stack {
  std::array<void*, kDepth> frames{};
  int size = 0;
};

thread_local Stack last_throw;

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 ? text.get() : name;
}

std::string frame_text(int index, void* address) {
  Dl_info info{};
  if (!dladdr(address, &info)) return format("  #{} {}\n", index, address);
  const auto offset = static_cast<const char*>(address) - static_cast<const char*>(info.dli_fbase);
  const std::string file = info.dli_fname ? info.dli_fname : "?";
  const std::string name = info.dli_sname ? demangled(info.dli_sname) : "?";
  return format("  #{} {} in {}+{:#x}\n", index, name, file.substr(file.rfind('/') + 1), offset);
}

}  // namespace

bool tracing() {
  static const bool on = [] {
    const char* value = std::getenv("LOCKSTEP_TRACE");
    return value && std::string(value) == "1";
  }();
  return on;
}

std::string last_trace() {
  std::string text;
  for (int i = 1; i < last_throw.size; ++i)
    text += frame_text(i - 1, last_throw.frames[static_cast<size_t>(i)]);
  return text;
}

}  // namespace lockstep::cli

// Every throw of the program and its libraries passes here on its way to the C++ runtime: once an exception
// has been caught its stack is gone, so it is taken down before it flies (Itanium C++ ABI, 2.4.3).
// The symbol is named by hand, because compilers differ in how they declare the function.
extern "C" [[noreturn]] void traced_throw(void* thrown, void* type,
                                          void (*destroy)(void*)) __asm__("__cxa_throw");

extern "C" void traced_throw(void* thrown, void* type, void (*destroy)(void*)) {
  using Throw = void (*)(void*, void*, void (*)(void*));
  static const auto real = reinterpret_cast<Throw>(dlsym(RTLD_NEXT, "__cxa_throw"));
  if (lockstep::cli::tracing()) {
    auto& stack = lockstep::cli::last_throw;
    stack.size = backtrace(stack.frames.data(), lockstep::cli::kDepth);
  }
  real(thrown, type, destroy);
  std::abort();  // real does not return
}
