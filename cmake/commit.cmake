# commit.cmake - writes OUT, a header with the commit that is built, where SOURCE is a clone of git's;
# an empty one elsewhere. It is written only when it changes, so that nothing is compiled again.
#
#   cmake -DSOURCE=DIR -DOUT=FILE -P commit.cmake
set(commit "")
find_program(GIT git)
if(GIT AND EXISTS ${SOURCE}/.git) # not that of a folder above: packages are built inside the clone
  execute_process(COMMAND ${GIT} --no-optional-locks describe --always --dirty=+ --abbrev=12 --exclude *
                  WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
set(text "/* Made by cmake/commit.cmake: \"\" where it is not known; + behind it: with changes. */\n#define RADISH_COMMIT \"${commit}\"\n")
set(have "")
if(EXISTS ${OUT})
  file(READ ${OUT} have)
endif()
if(NOT have STREQUAL text)
  file(WRITE ${OUT} "${text}")
endif()
