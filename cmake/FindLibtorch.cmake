# Libtorch as two imported targets, without enabling the CUDA language:
#   libtorch::cpu   torch_cpu, c10
#   libtorch::cuda  torch_cuda, c10_cuda (only where the libraries are there)
# Looked for in LIBTORCH_ROOT (a libtorch folder or a wheel's torch folder), then .deps/python, then the
# torch that `python3` would import. Also sets Libtorch_VERSION, Libtorch_ROOT.
set(LIBTORCH_WANTED 2.11.0 2.7.1)

if(NOT LIBTORCH_ROOT)
  foreach(python ${PROJECT_SOURCE_DIR}/.deps/python/bin/python3 python3)
    execute_process(
      COMMAND ${python} -c "import importlib.util as u, os; print(os.path.dirname(u.find_spec('torch').origin))"
      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    if(NOT failed)
      set(LIBTORCH_ROOT ${found} CACHE PATH "A libtorch folder, or the torch folder of a wheel")
      break()
    endif()
  endforeach()
endif()

set(Libtorch_ROOT_DIR ${LIBTORCH_ROOT})
find_path(Libtorch_INCLUDE_DIR torch/script.h PATHS ${LIBTORCH_ROOT}/include NO_DEFAULT_PATH)
foreach(lib torch_cpu c10 torch_cuda c10_cuda)
  find_library(Libtorch_${lib}_LIBRARY ${lib} PATHS ${LIBTORCH_ROOT}/lib NO_DEFAULT_PATH)
endforeach()

foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  if(EXISTS "${Libtorch_INCLUDE_DIR}/${header}" AND NOT Libtorch_VERSION)
    foreach(part MAJOR MINOR PATCH)
      file(STRINGS "${Libtorch_INCLUDE_DIR}/${header}" line REGEX "#define TORCH_VERSION_${part} ")
      string(REGEX MATCH "[0-9]+$" number "${line}")
      list(APPEND version ${number})
    endforeach()
    list(JOIN version . Libtorch_VERSION)
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libtorch
  REQUIRED_VARS Libtorch_torch_cpu_LIBRARY Libtorch_c10_LIBRARY Libtorch_INCLUDE_DIR VERSION_VAR Libtorch_VERSION)

if(Libtorch_FOUND AND NOT Libtorch_VERSION IN_LIST LIBTORCH_WANTED)
  message(FATAL_ERROR "libtorch ${Libtorch_VERSION} in ${LIBTORCH_ROOT}: lockstep is written for ${LIBTORCH_WANTED}")
endif()

if(Libtorch_FOUND AND NOT TARGET libtorch::cpu)
  add_library(libtorch::c10 SHARED IMPORTED)
  set_target_properties(libtorch::c10 PROPERTIES IMPORTED_LOCATION ${Libtorch_c10_LIBRARY})
  add_library(libtorch::cpu SHARED IMPORTED)
  set_target_properties(libtorch::cpu PROPERTIES IMPORTED_LOCATION ${Libtorch_torch_cpu_LIBRARY})
  target_include_directories(libtorch::cpu SYSTEM INTERFACE
    ${Libtorch_INCLUDE_DIR} ${Libtorch_INCLUDE_DIR}/torch/csrc/api/include)
  target_compile_definitions(libtorch::cpu INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  target_link_libraries(libtorch::cpu INTERFACE libtorch::c10 Threads::Threads)
  if(Libtorch_torch_cuda_LIBRARY AND Libtorch_c10_cuda_LIBRARY)
    add_library(libtorch::c10_cuda SHARED IMPORTED)
    set_target_properties(libtorch::c10_cuda PROPERTIES IMPORTED_LOCATION ${Libtorch_c10_cuda_LIBRARY})
    add_library(libtorch::cuda SHARED IMPORTED)
    set_target_properties(libtorch::cuda PROPERTIES IMPORTED_LOCATION ${Libtorch_torch_cuda_LIBRARY})
    target_compile_definitions(libtorch::cuda INTERFACE USE_C10D_NCCL)
    target_link_libraries(libtorch::cuda INTERFACE libtorch::c10_cuda libtorch::cpu)
  endif()
endif()
mark_as_advanced(Libtorch_INCLUDE_DIR Libtorch_torch_cpu_LIBRARY Libtorch_c10_LIBRARY
  Libtorch_torch_cuda_LIBRARY Libtorch_c10_cuda_LIBRARY)
