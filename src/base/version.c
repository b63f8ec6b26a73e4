/* version.c - which libradish this is, as it was when the library was built: a program
 * compiled against other headers learns it by asking here. */
#include <radish/radish.h>

uint32_t rad_version(void)
{
    return RAD_VERSION;
}

const char *rad_version_string(void)
{
    return RAD_VERSION_STRING;
}
