# Where ccache is installed, it keeps what was compiled, for other clones on this machine, too: paths are hashed relative to
# the source tree, and precompiled headers by their content. -DLOCKSTEP_CCACHE=OFF does without.
find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=true
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${LOCKSTEP_CCACHE})
  if(LOCKSTEP_CCACHE_DIR)
    list(INSERT CMAKE_CXX_COMPILER_LAUNCHER 3 CCACHE_DIR=${LOCKSTEP_CCACHE_DIR})
  endif()
  add_compile_options(-fpch-preprocess)  # shows ccache which precompiled header a source takes
endif()
