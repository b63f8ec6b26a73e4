/* options.h - command-line options as a table: parsing and the manual from one place. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "cli/config_file.h"

#include <stdbool.h>

typedef enum cli_kind {
    CLI_HEADING = 0, /* `help` is a line of the manual, nothing to parse */
    CLI_FLAG,        /* bool *, set to true */
    CLI_TEXT,        /* const char ** */
    CLI_LIST,        /* cli_list *: may be given more than once */
    CLI_CONFIG,      /* config_file *: the file of this name is read first; the caller closes it */
    CLI_U16,
    CLI_U32,
    CLI_I32,
    CLI_I64,
    CLI_U64,
    CLI_F32,
    CLI_F64
} cli_kind;

enum { CLI_LIST_MAX = 16 };

typedef struct cli_list {
    const char *texts[CLI_LIST_MAX];
    uint32_t count;
} cli_list;

typedef struct cli_option {
    cli_kind kind;
    char letter;      /* 0 = none */
    const char *name; /* without the dashes */
    const char *arg;  /* what the manual calls its value */
    const char *help; /* may have several lines */
    void *target;
    double min, max;    /* of numbers; both 0 = what the type holds */
    bool *given;        /* NULL, or set to true when the option is there */
    const char *values; /* what shells complete it with, as a sentence lists it: "a (default), b or
                         * c"; NULL: what `arg` has between its | */
} cli_option;

typedef struct cli_manual {
    const char *command; /* "serve" */
    const char *usage;   /* "serve -m MODEL [options]" */
    const char *about;   /* what it does; lines */
    const char *after;   /* examples; NULL = none */
    const char *words; /* what the word without a dash may be, "bash zsh fish"; "": anything, NULL:
                          a file */
} cli_manual;

enum { CLI_GO_ON = -1 };

/* Takes --name VALUE, --name=VALUE, -x VALUE, -xVALUE and at most one word without a dash, which
 * goes to *positional (NULL: there must be none). Returns CLI_GO_ON, or the exit code: 0 after
 * --help (the manual is on stdout), 2 after a mistake (one line is on stderr). Texts point into
 * argv and into the config file. */
int cli_parse(const cli_manual *manual, const cli_option *options, unsigned count, int argc,
              char **argv, const char **positional);

/* What is shown of a command's table. `takes_word`: a word without a dash may be there. */
typedef void (*cli_show)(void *user, const cli_manual *manual, const cli_option *options,
                         unsigned count, bool takes_word);

/* Runs a command for its table alone, which its cli_parse gives to `show`: for the shells'
 * completion and the manual's pages. */
void cli_show_table(int (*run)(int argc, char **argv), cli_show show, void *user);

#endif
