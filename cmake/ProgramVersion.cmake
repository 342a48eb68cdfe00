# lockstep_program_version(TARGET SOURCE): what `lockstep --version` says. The commit is looked up at each build, the
# rest when CMake configures.
function(lockstep_program_version target source)
  set(header ${CMAKE_CURRENT_BINARY_DIR}/git_commit.h)
  add_custom_target(lockstep_git_commit BYPRODUCTS ${header}
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DOUTPUT=${header}
            -P ${PROJECT_SOURCE_DIR}/cmake/GitCommit.cmake)
  add_dependencies(${target} lockstep_git_commit)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR})

  set(cuda "not built in")
  set(nccl "not built in")
  if(LOCKSTEP_WITH_CUDA AND EXISTS "${Libtorch_CUDART_INCLUDE}/cuda_runtime_api.h")
    libtorch_numbers(number ${Libtorch_CUDART_INCLUDE}/cuda_runtime_api.h CUDART_VERSION)
    math(EXPR major "${number} / 1000")
    math(EXPR minor "${number} % 1000 / 10")
    set(cuda "${major}.${minor}")
    libtorch_numbers(nccl ${Libtorch_NCCL_INCLUDE}/nccl.h NCCL_MAJOR NCCL_MINOR NCCL_PATCH)
    list(JOIN nccl . nccl)
  endif()

  set(compiler "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
  foreach(definition "VERSION=${PROJECT_VERSION}" "LIBTORCH_VERSION=${Libtorch_VERSION}" "CUDA_VERSION=${cuda}"
          "NCCL_VERSION=${nccl}" "COMPILER=${compiler}")
    string(REGEX REPLACE "=(.*)" "=\"\\1\"" definition "${definition}")
    list(APPEND definitions "LOCKSTEP_${definition}")
  endforeach()
  set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS "${definitions}")
endfunction()
