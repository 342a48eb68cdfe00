# A libtorch that is newer than all that the tests have run with: libtorch_probe.cpp compiles what lockstep needs of it that is
# no public interface. Tried with a warning, refused with what does not fit.
function(libtorch_probe)
  set(probed "${Libtorch_ROOT_DIR} ${Libtorch_VERSION}")
  if(NOT LIBTORCH_PROBED STREQUAL probed)
    message(WARNING "libtorch ${Libtorch_VERSION} is newer than ${LIBTORCH_NEWEST}, the last that lockstep's tests have run with. "
      "Trying it: run scripts/test before you rely on it.")
    set(sources ${CMAKE_CURRENT_LIST_DIR}/../src)
    set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
    try_compile(fits ${CMAKE_BINARY_DIR}/libtorch_probe ${CMAKE_CURRENT_LIST_DIR}/libtorch_probe.cpp
      CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${sources};${sources}/lockstep/comm/gloo_headers;${Libtorch_INCLUDE_DIR};${Libtorch_INCLUDE_DIR}/torch/csrc/api/include"
      COMPILE_DEFINITIONS -DUSE_DISTRIBUTED -DUSE_C10D_GLOO OUTPUT_VARIABLE told CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON)
    if(NOT fits)
      string(REPLACE ";" "," told "${told}")
      string(REGEX MATCHALL "static assertion failed: [^\n]*" reasons "${told}")
      if(NOT reasons)
        string(REGEX MATCHALL "error: [^\n]*" reasons "${told}")
      endif()
      list(SUBLIST reasons 0 5 reasons)
      list(JOIN reasons "\n  " reasons)
      message(FATAL_ERROR "libtorch ${Libtorch_VERSION} in ${Libtorch_ROOT_DIR} does not fit this lockstep:\n  ${reasons}\n"
        "Take a libtorch from ${LIBTORCH_OLDEST} to ${LIBTORCH_NEWEST} (-DLIBTORCH_ROOT=FOLDER), or a newer lockstep.")
    endif()
    set(LIBTORCH_PROBED "${probed}" CACHE INTERNAL "the libtorch that libtorch_probe.cpp fits")
  endif()
endfunction()
libtorch_probe()
