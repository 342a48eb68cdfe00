// How libtorch gets at the driver's functions.
#include <dlfcn.h>

#include <string>

#include "../lab.h"
#include "context.h"
#include "settings.h"

namespace {

void* find(const char* symbol) {
  static void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY);
  if (!driver) lab::say("the driver is not there: %s", ::dlerror());
  return driver ? ::dlsym(driver, symbol) : nullptr;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long, cudaDriverEntryPointQueryResult* status) {
  *function = find((std::string(symbol) + "_v2").c_str());
  if (!*function) *function = find(symbol);
  if (pretended::text("LAB_TRACE"))
    lab::say("driver entry point: %s%s", symbol, *function ? "" : ", not there");
  if (status) *status = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return *function || status ? cudaSuccess : pretended::give(cudaErrorSymbolNotFound);
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* status) {
  return cudaGetDriverEntryPointByVersion(symbol, function, CUDART_VERSION, flags, status);
}

}  // extern "C"
