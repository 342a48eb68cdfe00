# Everything lockstep is built with; docs/dependencies.md says why each is there.
# Sets LOCKSTEP_WITH_CUDA and LOCKSTEP_WITH_TESTS from what was asked for and what is there.
find_package(Libtorch REQUIRED)
set(LOCKSTEP_LIBTORCH_VERSION ${Libtorch_VERSION} CACHE INTERNAL "what the tests' Python peers must have")
find_package(MPI QUIET COMPONENTS C)  # its mpi.h is all that a build needs of it
if(MPI_C_VERSION AND MPI_C_VERSION VERSION_LESS 3.0)
  message(FATAL_ERROR "MPI ${MPI_C_VERSION} in ${MPI_C_LIBRARIES}: lockstep needs an MPI-3 library (Open MPI, MPICH)")
endif()
set(LOCKSTEP_MPI_INCLUDES "" CACHE STRING "folders with the mpi.h of further MPIs")
find_package(Threads REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
if(NOT TARGET yaml-cpp)  # its name from 0.8 on
  add_library(yaml-cpp INTERFACE IMPORTED)
  target_link_libraries(yaml-cpp INTERFACE yaml-cpp::yaml-cpp)
endif()

# lockstep_decide(RESULT WISH HAVE "why not"): AUTO, ON or OFF against what is there
function(lockstep_decide result wish have reason)
  if(wish STREQUAL "OFF" OR wish STREQUAL "FALSE" OR wish STREQUAL "0")
    set(${result} OFF PARENT_SCOPE)
  elseif(have)
    set(${result} ON PARENT_SCOPE)
  elseif(wish STREQUAL "AUTO")
    set(${result} OFF PARENT_SCOPE)
    message(STATUS "${result}: OFF, ${reason}")
  else()
    message(FATAL_ERROR "${result} was asked for: ${reason}")
  endif()
endfunction()

lockstep_decide(LOCKSTEP_WITH_CUDA "${LOCKSTEP_CUDA}" "${Libtorch_CUDA_FOUND}" "${Libtorch_CUDA_MISSING}")
find_package(GTest QUIET)
lockstep_decide(LOCKSTEP_WITH_TESTS "${LOCKSTEP_TESTS}" "${GTest_FOUND}" "GoogleTest is not there")
