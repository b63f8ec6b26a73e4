# libradish as others link it, static and shared, from the objects of the cache's rooms.
#
#   radish_core     every symbol visible to the linker: for radish-engine and the tests,
#                   which use inner functions too. Never installed.
#   radish          libradish.so.0: exports what RAD_API marks and nothing else.
#   radish_static   libradish.a. Hidden visibility is not enough here: a hidden symbol of
#                   an archive still meets the program's symbols of that name at link
#                   time, and `heap_push` is a name that an engine may well have. So the
#                   objects are linked into one (-r), and in it what is hidden is made
#                   local.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(core_objects)
foreach(room ${CACHE_ROOMS})
  if(TARGET room_${room})
    list(APPEND core_objects $<TARGET_OBJECTS:room_${room}>)
  endif()
endforeach()

add_library(radish_core STATIC ${core_objects})
set_target_properties(radish_core PROPERTIES LINKER_LANGUAGE C OUTPUT_NAME radish-core)
target_link_libraries(radish_core PUBLIC Threads::Threads crypto)

set(one_object ${CMAKE_CURRENT_BINARY_DIR}/libradish.o)
add_custom_command(OUTPUT ${one_object}
  COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${one_object} ${core_objects}
  COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${one_object}
  DEPENDS ${core_objects} COMMAND_EXPAND_LISTS VERBATIM COMMENT "Linking libradish.o")
add_library(radish_static STATIC ${one_object})
set_source_files_properties(${one_object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)

add_library(radish SHARED ${core_objects})
set_target_properties(radish PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
if(NOT RADISH_SANITIZE) # a sanitizer's functions come with the program
  target_link_options(radish PRIVATE -Wl,--no-undefined
                      -Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/libradish.map)
  set_property(TARGET radish APPEND PROPERTY LINK_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/libradish.map)
endif()
target_link_options(radish PRIVATE -Wl,--as-needed)
target_link_libraries(radish PRIVATE Threads::Threads crypto)
target_link_libraries(radish_static PUBLIC Threads::Threads crypto)

foreach(lib radish radish_static)
  set_target_properties(${lib} PROPERTIES LINKER_LANGUAGE C OUTPUT_NAME radish)
  target_include_directories(${lib} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  add_library(radish::${lib} ALIAS ${lib}) # the same names as after find_package
endforeach()

install(TARGETS radish radish_static EXPORT radish
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/radish DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/radish)
configure_file(${CMAKE_CURRENT_LIST_DIR}/radishConfig.cmake.in radishConfig.cmake @ONLY)
# 0.x: another minor version is another ABI.
write_basic_package_version_file(radishConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT radish NAMESPACE radish:: FILE radishTargets.cmake DESTINATION ${package_dir})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/radishConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/radishConfigVersion.cmake DESTINATION ${package_dir})

file(RELATIVE_PATH RADISH_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" RADISH_PC_TO_PREFIX "${RADISH_PC_TO_PREFIX}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/radish.pc.in radish.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/radish.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
