# Together with the rest, or it alone: cmake --install BUILD --component course.
if(LOCKSTEP_COURSE)
  set_target_properties(lockstep_course PROPERTIES SOVERSION ${soversion} VERSION ${PROJECT_VERSION})
  install(TARGETS lockstep_course_program RUNTIME COMPONENT course)
  install(TARGETS lockstep_course EXPORT lockstepCourseTargets LIBRARY COMPONENT course)
  lockstep_export(Course COMPONENT course)
  install(DIRECTORY course/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT course)
  install(DIRECTORY tutorials/ DESTINATION ${share_dir}/tutorials COMPONENT course PATTERN __pycache__ EXCLUDE)
endif()
