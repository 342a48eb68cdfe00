// What libtorch asks the runtime for and the laboratory does not imitate: each says its name, and is an
// error. CUDA's header declares them with other signatures, so the assembler gives them their names.
#include "../lab.h"
#include "context.h"

#define NOT_IMITATED(name)                               \
  extern "C" cudaError_t lab_no_##name() __asm__(#name); \
  extern "C" cudaError_t lab_no_##name() {               \
    lab::say("not imitated: %s", #name);                 \
    return pretended::give(cudaErrorNotSupported);       \
  }

NOT_IMITATED(cudaDeviceGetDefaultMemPool)
NOT_IMITATED(cudaDeviceGetGraphMemAttribute)
NOT_IMITATED(cudaDeviceSetGraphMemAttribute)
NOT_IMITATED(cudaGetSymbolAddress)
NOT_IMITATED(cudaGraphAddNode)
NOT_IMITATED(cudaGraphConditionalHandleCreate)
NOT_IMITATED(cudaGraphDebugDotPrint)
NOT_IMITATED(cudaGraphNodeGetDependencies)
NOT_IMITATED(cudaIpcCloseMemHandle)
NOT_IMITATED(cudaIpcGetEventHandle)
NOT_IMITATED(cudaIpcGetMemHandle)
NOT_IMITATED(cudaIpcOpenEventHandle)
NOT_IMITATED(cudaIpcOpenMemHandle)
NOT_IMITATED(cudaKernelSetAttributeForDevice)
NOT_IMITATED(cudaLibraryGetGlobal)
NOT_IMITATED(cudaLibraryGetKernel)
NOT_IMITATED(cudaLibraryGetKernelCount)
NOT_IMITATED(cudaLibraryGetManaged)
NOT_IMITATED(cudaLibraryGetUnifiedFunction)
NOT_IMITATED(cudaLibraryLoadData)
NOT_IMITATED(cudaLibraryLoadFromFile)
NOT_IMITATED(cudaLibraryUnload)
NOT_IMITATED(cudaMallocManaged)
NOT_IMITATED(cudaMemPoolGetAttribute)
NOT_IMITATED(cudaMemPoolSetAccess)
NOT_IMITATED(cudaMemPoolSetAttribute)
NOT_IMITATED(cudaMemPoolTrimTo)
NOT_IMITATED(cudaMemcpyToSymbol)
NOT_IMITATED(cudaStreamBeginCaptureToGraph)
NOT_IMITATED(cudaStreamUpdateCaptureDependencies)
