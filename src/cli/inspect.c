/* inspect.c - `radish inspect`: into what? */
#include "cli/cli.h"

#include <stdio.h>

static const struct subject {
    const char *name, *about;
    int (*run)(int argc, char **argv);
} subjects[] = {
    {"cache", "the tree of a running server: what is kept, for whom and why", cmd_inspect_cache},
    {"store", "a directory of stored pages: what is there, verify and prune it", cmd_inspect_store},
};

int cmd_inspect(int argc, char **argv)
{
    const char *name = argc > 0 ? argv[0] : NULL;
    for (size_t i = 0; name && i < RAD_COUNT(subjects); i++)
        if (!strcmp(subjects[i].name, name)) return subjects[i].run(argc - 1, argv + 1);
    if (!name || (strcmp(name, "--help") != 0 && strcmp(name, "-h") != 0))
        return cli_usage("inspect", "what? There is: cache [URL], store DIR");
    printf("usage: radish inspect SUBJECT [options]\n\n");
    for (size_t i = 0; i < RAD_COUNT(subjects); i++)
        printf("  %-6s %s\n", subjects[i].name, subjects[i].about);
    for (size_t i = 0; i < RAD_COUNT(subjects); i++) {
        printf("\n");
        subjects[i].run(1, argv); /* its manual */
    }
    return 0;
}
