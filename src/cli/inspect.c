/* inspect.c - `radish inspect`: into what? */
#include "cli/cli.h"

#include <stdio.h>

const cli_command cli_inspect_subjects[] = {
    {"cache", "the tree of a running server: what is kept, for whom and why", cmd_inspect_cache},
    {"store", "a directory of stored pages: what is there, verify and prune it", cmd_inspect_store},
    {0},
};

int cmd_inspect(int argc, char **argv)
{
    const char *name = argc > 0 ? argv[0] : NULL;
    for (const cli_command *s = cli_inspect_subjects; name && s->name; s++)
        if (!strcmp(s->name, name)) return s->run(argc - 1, argv + 1);
    if (!name || (strcmp(name, "--help") != 0 && strcmp(name, "-h") != 0))
        return cli_usage("inspect", "what? There is: cache [URL], store DIR");
    printf("usage: radish inspect SUBJECT [options]\n\n");
    for (const cli_command *s = cli_inspect_subjects; s->name; s++)
        printf("  %-6s %s\n", s->name, s->about);
    for (const cli_command *s = cli_inspect_subjects; s->name; s++) {
        printf("\n");
        s->run(1, argv); /* its manual */
    }
    return 0;
}
