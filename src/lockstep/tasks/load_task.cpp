// A task from a shared library, compared with this program before anything of it is called.
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/paths.h"
#include "lockstep/tasks/registry.h"

namespace lockstep::tasks {
namespace {

constexpr const char* kHow = "docs/tasks.md shows how to build one";

// With a slash, or dlopen would search the system's library folders instead.
std::string absolute(const std::string& path) {
  return std::filesystem::absolute(base::find_path(path));
}

template <class Function>
Function* symbol(void* library, const char* name, const std::string& path) {
  if (void* found = dlsym(library, name)) return reinterpret_cast<Function*>(found);
  throw InputError(format("the shared library holds no task: it has no {}", name), path,
                   "end its source with LOCKSTEP_TASK(YourTask); docs/tasks.md");
}

}  // namespace

// The library stays loaded for good: the task's code, and what it made, live in it.
std::unique_ptr<Task> load_task(const std::string& name) {
  const auto path = absolute(name);
  base::RegularFile(path, "the task's shared library", kHow);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw InputError(format("cannot load the task: {}", dlerror()), path, kHow);
  const std::string theirs = symbol<const char*()>(library, "lockstep_task_abi", path)();
  LOCKSTEP_TASK_ABI(ours);
  if (theirs != ours) {
    throw InputError(format("the task was built for another lockstep: for '{}', this is '{}'", theirs, ours),
                     path, "build it again with this lockstep's headers");
  }
  return std::unique_ptr<Task>(symbol<Task*()>(library, "lockstep_make_task", path)());
}

}  // namespace lockstep::tasks
