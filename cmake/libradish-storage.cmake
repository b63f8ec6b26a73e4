# libradish-storage: the file and Redis backends as others link them, static and shared.
#
#   radish_storage_core    for radish-engine and the tests. Never installed.
#   radish_storage         libradish-storage.so.0; needs libradish.so.0, liburing, libhiredis.
#   radish_storage_static  libradish-storage.a, hidden symbols made local as in libradish.a.
#
# The few helpers of src/base that the backends use are hidden in libradish, so this library
# has its own copy of them.
if(NOT TARGET room_storage)
  return()
endif()
set(storage_libs PkgConfig::URING PkgConfig::HIREDIS)

add_library(radish_storage_core STATIC $<TARGET_OBJECTS:room_storage>)
set_target_properties(radish_storage_core PROPERTIES LINKER_LANGUAGE C)
target_link_libraries(radish_storage_core PUBLIC radish_core ${storage_libs})

add_library(storage_helpers OBJECT src/base/env.c src/base/log_text.c)
set(storage_objects $<TARGET_OBJECTS:room_storage> $<TARGET_OBJECTS:storage_helpers>)
set(storage_object ${CMAKE_CURRENT_BINARY_DIR}/libradish-storage.o)
add_custom_command(OUTPUT ${storage_object}
  COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${storage_object} ${storage_objects}
  COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${storage_object}
  DEPENDS ${storage_objects} COMMAND_EXPAND_LISTS VERBATIM COMMENT "Linking libradish-storage.o")
add_library(radish_storage_static STATIC ${storage_object})
set_source_files_properties(${storage_object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
target_link_libraries(radish_storage_static PUBLIC radish_static uring hiredis)

add_library(radish_storage SHARED ${storage_objects})
set_target_properties(radish_storage PROPERTIES VERSION ${PROJECT_VERSION}
                      SOVERSION ${PROJECT_VERSION_MAJOR})
if(NOT RADISH_SANITIZE) # a sanitizer's functions come with the program
  target_link_options(radish_storage PRIVATE -Wl,--no-undefined
                      -Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/libradish-storage.map)
  set_property(TARGET radish_storage APPEND PROPERTY LINK_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/libradish-storage.map)
endif()
target_link_options(radish_storage PRIVATE -Wl,--as-needed)
target_link_libraries(radish_storage PUBLIC radish PRIVATE ${storage_libs} Threads::Threads)

# radish::storage and radish::storage_static, as after find_package
foreach(kind "" _static)
  set_target_properties(radish_storage${kind} PROPERTIES LINKER_LANGUAGE C
                        OUTPUT_NAME radish-storage EXPORT_NAME storage${kind})
  add_library(radish::storage${kind} ALIAS radish_storage${kind})
endforeach()

install(TARGETS radish_storage radish_storage_static EXPORT radish
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
configure_file(${CMAKE_CURRENT_LIST_DIR}/radish-storage.pc.in radish-storage.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/radish-storage.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
