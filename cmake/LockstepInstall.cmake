# cmake --install: the program, the library with lockstepConfig.cmake, its headers, and the share folder.
# The tree may be moved or read-only: everything finds its neighbors from where it lies itself.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
set(share_dir ${CMAKE_INSTALL_DATADIR}/lockstep)

# Before 1.0 each minor version is another library, as write_basic_package_version_file says below.
set(soversion ${PROJECT_VERSION_MAJOR})
if(PROJECT_VERSION VERSION_LESS 1)
  set(soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endif()
set_target_properties(lockstep PROPERTIES SOVERSION ${soversion} VERSION ${PROJECT_VERSION})

install(TARGETS lockstep_program lockstep_job_program RUNTIME)
install(TARGETS lockstep EXPORT lockstepTargets LIBRARY NAMELINK_COMPONENT Development)
# A file for each part, as not all may be there. The build tree's: for CMAKE_PREFIX_PATH=LOCKSTEP/build/release.
macro(lockstep_export name)
  install(EXPORT lockstep${name}Targets NAMESPACE lockstep:: DESTINATION ${package_dir} ${ARGN})
  export(EXPORT lockstep${name}Targets NAMESPACE lockstep:: FILE ${CMAKE_CURRENT_BINARY_DIR}/lockstep${name}Targets.cmake)
endmacro()
lockstep_export("")
if(TARGET lockstep_cuda)
  set_target_properties(lockstep_cuda PROPERTIES EXPORT_NAME cuda)
  install(TARGETS lockstep_cuda EXPORT lockstepCudaTargets LIBRARY)
  lockstep_export(Cuda)
endif()
include(${PROJECT_SOURCE_DIR}/course/Install.cmake)
foreach(family openmpi mpich)  # loaded by name, linked by nobody
  if(TARGET lockstep_mpi_${family})
    install(TARGETS lockstep_mpi_${family} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endforeach()
foreach(plugin fast python)  # scripts/run does not build them
  if(TARGET lockstep_${plugin})
    install(TARGETS lockstep_${plugin} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} OPTIONAL)
  endif()
endforeach()
if(TARGET lockstep_python)
  install(DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/python DESTINATION ${CMAKE_INSTALL_LIBDIR} PATTERN __pycache__ EXCLUDE)
endif()

configure_package_config_file(cmake/lockstepConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/lockstepConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lockstepConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/lockstepConfigVersion.cmake
  cmake/FindLibtorch.cmake cmake/LibtorchCuda.cmake DESTINATION ${package_dir})
foreach(file FindLibtorch.cmake LibtorchCuda.cmake)  # beside lockstepConfig.cmake, which looks for them there
  configure_file(cmake/${file} ${CMAKE_CURRENT_BINARY_DIR}/${file} COPYONLY)
endforeach()

# For builds without CMake.
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/lockstep.pc.in ${CMAKE_CURRENT_BINARY_DIR}/lockstep.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lockstep.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The public headers, as they stand in the tree.
get_property(public_headers GLOBAL PROPERTY lockstep_public_headers)
foreach(header lockstep.h ${public_headers})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES src/lockstep/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep/${folder} COMPONENT Headers)
endforeach()

# The modulefiles, which know where they were installed and what was loaded when this was built.
string(REPLACE ":" ";" LOCKSTEP_LOADED_MODULES "$ENV{LOADEDMODULES}")
list(FILTER LOCKSTEP_LOADED_MODULES INCLUDE REGEX "^[A-Za-z0-9_.+/=@~-]+$")
list(FILTER LOCKSTEP_LOADED_MODULES EXCLUDE REGEX "^lockstep(/|$)")
configure_file(cmake/install_tree.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/install_tree.cmake @ONLY)
install(SCRIPT ${CMAKE_CURRENT_BINARY_DIR}/install_tree.cmake)

# Completions, which ask the program, where each shell looks for them.
install(FILES packaging/completions/lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES packaging/completions/_lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES packaging/completions/lockstep.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

foreach(folder configs data docs examples job_scripts)
  install(DIRECTORY ${folder}/ DESTINATION ${share_dir}/${folder} USE_SOURCE_PERMISSIONS PATTERN __pycache__ EXCLUDE)
endforeach()
install(FILES LICENSE README.md DESTINATION ${share_dir})
