# commit.cmake - writes OUT, a header with the commit that is built, where SOURCE is a clone of git's;
# an empty one elsewhere; and the day of it, or SOURCE_DATE_EPOCH's, or radish.h's. It is written only
# when it changes, so that nothing is compiled again.
#
#   cmake -DSOURCE=DIR -DOUT=FILE -P commit.cmake
set(commit "")
set(day "")
find_program(GIT git)
if(GIT AND EXISTS ${SOURCE}/.git) # not that of a folder above: packages are built inside the clone
  execute_process(COMMAND ${GIT} --no-optional-locks describe --always --dirty=+ --abbrev=12 --exclude *
                  WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env TZ=UTC LC_ALL=C
                          ${GIT} log -1 --format=%cd "--date=format-local:%B %d, %Y"
                  WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE day ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
if(DEFINED ENV{SOURCE_DATE_EPOCH})
  string(TIMESTAMP day "%B %d, %Y" UTC)
elseif(NOT day)
  file(TIMESTAMP ${SOURCE}/include/radish/radish.h day "%B %d, %Y" UTC)
endif()
string(REPLACE " 0" " " day "${day}") # November 3, not 03: as mdoc has it
set(text "/* Made by cmake/commit.cmake: \"\" where it is not known; + behind it: with changes. */\n#define RADISH_COMMIT \"${commit}\"\n#define RADISH_DATE \"${day}\"\n")
set(have "")
if(EXISTS ${OUT})
  file(READ ${OUT} have)
endif()
if(NOT have STREQUAL text)
  file(WRITE ${OUT} "${text}")
endif()
