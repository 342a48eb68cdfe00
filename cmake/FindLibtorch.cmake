# Libtorch as imported targets, without enabling the CUDA language (find_package(Torch) does, and fails with
# CMake 3.25 and CUDA 13):
#   libtorch::cpu     torch_cpu, c10
#   libtorch::cuda    torch_cuda, c10_cuda with CUDA's runtime and NCCL, only where all of them are there
# Looked for in LIBTORCH_ROOT, then the variables that modules set, .deps/python, CMAKE_PREFIX_PATH and the torch
# that python3 would import. Each may be a libtorch folder, a wheel's torch folder or a prefix that holds one.
# Sets Libtorch_FOUND, Libtorch_VERSION, Libtorch_ROOT_DIR, Libtorch_INCLUDE_DIR, Libtorch_CUDA_FOUND, Libtorch_CUDA_MISSING (a reason).
if(NOT LIBTORCH_WANTED)
  set(LIBTORCH_WANTED 2.11.0 2.7.1)
endif()
set(LIBTORCH_ROOT "" CACHE PATH "A libtorch folder, or the torch folder of a wheel (empty: search)")

# The version in libtorch's own header, or nothing. 2.11 and 2.7 keep it in different files.
function(libtorch_version folder result)
  set(${result} "" PARENT_SCOPE)
  foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS "${folder}/include/${header}")
      set(version "")
      foreach(part MAJOR MINOR PATCH)
        file(STRINGS "${folder}/include/${header}" line REGEX "#define TORCH_VERSION_${part} ")
        string(REGEX MATCH "[0-9]+$" number "${line}")
        list(APPEND version ${number})
      endforeach()
      list(LENGTH version parts)
      if(parts EQUAL 3)
        list(JOIN version . version)
        set(${result} ${version} PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
endfunction()

# The folders that hold include/torch, at a place that was named or below it.
function(libtorch_folders result)
  set(folders "")
  foreach(place ${ARGN})
    file(GLOB nested "${place}/lib/python3*/site-packages/torch" "${place}/lib64/python3*/site-packages/torch")
    foreach(folder "${place}" "${place}/torch" "${place}/libtorch" ${nested})
      if(EXISTS "${folder}/include/torch/script.h")
        list(APPEND folders "${folder}")
      endif()
    endforeach()
  endforeach()
  set(${result} ${folders} PARENT_SCOPE)
endfunction()

function(libtorch_search result)
  set(places "")
  foreach(variable LIBTORCH_ROOT LIBTORCH_HOME LIBTORCH TORCH_ROOT TORCH_HOME PYTORCH_ROOT EBROOTLIBTORCH EBROOTPYTORCH)
    if(DEFINED ENV{${variable}})
      list(APPEND places "$ENV{${variable}}")
    endif()
  endforeach()
  list(APPEND places ${LIBTORCH_HINTS} ${PROJECT_SOURCE_DIR}/.deps/python ${CMAKE_PREFIX_PATH})
  if(DEFINED ENV{CMAKE_PREFIX_PATH})
    string(REPLACE ":" ";" prefixes "$ENV{CMAKE_PREFIX_PATH}")
    list(APPEND places ${prefixes})
  endif()
  execute_process(
    COMMAND python3 -c "import importlib.util as u, os; print(os.path.dirname(u.find_spec('torch').origin))"
    OUTPUT_VARIABLE imported OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed EQUAL 0)
    list(APPEND places "${imported}")
  endif()
  libtorch_folders(folders ${places})
  set(${result} ${folders} PARENT_SCOPE)
endfunction()

if(LIBTORCH_ROOT)
  libtorch_folders(folders ${LIBTORCH_ROOT})
else()
  libtorch_search(folders)
endif()

unset(Libtorch_VERSION)
unset(Libtorch_ROOT_DIR)
set(refused "")
foreach(folder ${folders})
  libtorch_version("${folder}" version)
  if(version IN_LIST LIBTORCH_WANTED)
    set(Libtorch_VERSION ${version})
    get_filename_component(Libtorch_ROOT_DIR "${folder}" REALPATH)
    break()
  endif()
  string(APPEND refused "\n  ${version} in ${folder}")
endforeach()

list(JOIN LIBTORCH_WANTED " or " wanted)
if(refused AND NOT Libtorch_VERSION AND Libtorch_FIND_REQUIRED)
  message(FATAL_ERROR "lockstep is written for libtorch ${wanted}, and this is what was found:${refused}\n"
    "Install one of those (scripts/bootstrap does), or say where it is with -DLIBTORCH_ROOT=FOLDER.")
endif()

if(Libtorch_ROOT_DIR)
  set(Libtorch_INCLUDE_DIR ${Libtorch_ROOT_DIR}/include)
  foreach(lib torch_cpu c10 torch_cuda c10_cuda)
    set(Libtorch_${lib} "${Libtorch_ROOT_DIR}/lib/lib${lib}.so")
    if(NOT EXISTS "${Libtorch_${lib}}")
      set(Libtorch_${lib} Libtorch_${lib}-NOTFOUND)
    endif()
  endforeach()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libtorch
  REQUIRED_VARS Libtorch_torch_cpu Libtorch_c10 Libtorch_ROOT_DIR VERSION_VAR Libtorch_VERSION
  REASON_FAILURE_MESSAGE
  "libtorch ${wanted} is wanted: run scripts/bootstrap, or say where it is with -DLIBTORCH_ROOT=FOLDER")

if(Libtorch_FOUND AND NOT TARGET libtorch::cpu)
  find_package(Threads REQUIRED)
  add_library(libtorch::c10 SHARED IMPORTED)
  set_target_properties(libtorch::c10 PROPERTIES IMPORTED_LOCATION ${Libtorch_c10})
  add_library(libtorch::cpu SHARED IMPORTED)
  set_target_properties(libtorch::cpu PROPERTIES IMPORTED_LOCATION ${Libtorch_torch_cpu})
  target_include_directories(libtorch::cpu SYSTEM INTERFACE
    ${Libtorch_INCLUDE_DIR} ${Libtorch_INCLUDE_DIR}/torch/csrc/api/include)
  target_compile_definitions(libtorch::cpu INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  target_link_libraries(libtorch::cpu INTERFACE libtorch::c10 Threads::Threads)
  include(${CMAKE_CURRENT_LIST_DIR}/LibtorchCuda.cmake)
endif()
