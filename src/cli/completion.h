/* completion.h - what shells complete: the tables that --help is printed from, as a shell's words.
 */
#ifndef CLI_COMPLETION_H
#define CLI_COMPLETION_H

#include "cli/options.h"

typedef struct cli_command {
    const char *name, *about;
    int (*run)(int argc, char **argv);
} cli_command;

/* Of the program, and of radish inspect; the last has no name. */
extern const cli_command cli_commands[], cli_inspect_subjects[];

#endif
