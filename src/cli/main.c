/* main.c - one program, `radish`: which command? */
#include "cli/cli.h"

#include <stdio.h>

const cli_command cli_commands[] = {
    {"serve", "an OpenAI- and SGLang-compatible server", cmd_serve},
    {"chat", "talk to a model in the terminal", cmd_chat},
    {"generate", "continue one prompt", cmd_generate},
    {"tokenize", "text to token ids", cmd_tokenize},
    {"logits", "what the model says after every token of a prompt", cmd_logits},
    {"info", "what a GGUF file holds", cmd_info},
    {"bench", "how fast a model is here, and what sharing prefixes gives", cmd_bench},
    {"top", "what a running server does, in the terminal", cmd_top},
    {"health", "does a server answer?", cmd_health},
    {"inspect", "look into a server's cache, or a store of pages", cmd_inspect},
    {"render", "what a chat template makes of a conversation", cmd_render},
    {"replay", "what a cache would find in a trace of requests", cmd_replay},
    {"completion", "what a shell wants to complete words of these", cmd_completion},
    {"man", "a command's manual page, for man(1)", cmd_man},
    {"version", "which build this is, and what it computes with here", cmd_version},
    {0},
};

static void print_help(void)
{
    printf("radish %s - a small, fast LLM server that computes shared prefixes once\n\n"
           "usage: radish COMMAND [options]\n\n",
           RADISH_VERSION);
    for (const cli_command *c = cli_commands; c->name; c++)
        printf("  %-11s %s\n", c->name, c->about);
    printf("  %-11s %s\n\n"
           "`radish COMMAND --help` is the manual of a command. For example:\n\n"
           "  radish serve model.gguf\n"
           "  radish chat model.gguf\n"
           "  radish generate -m model.gguf -p \"Once upon a time\" -n 50\n\n"
           "Exit codes: 0 fine, 1 an error (one line on stderr), 2 a mistake in the usage.\n",
           "help", "this page");
}

static int run(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) {
        print_help();
        return 2;
    }
    char help[] = "--help", *help_args[] = {help, NULL}, **args = argv + 2;
    int count = argc - 2;
    if (!strcmp(name, "help") || !strcmp(name, "--help") || !strcmp(name, "-h")) {
        if (argc < 3) {
            print_help();
            return 0;
        }
        name = argv[2]; /* help COMMAND */
        args = help_args;
        count = 1;
    }
    if (!strcmp(name, "--version") || !strcmp(name, "-V")) name = "version";
    for (const cli_command *c = cli_commands; c->name; c++)
        if (!strcmp(c->name, name)) return c->run(count, args);
    fprintf(stderr, "radish: there is no command '%s' (radish help lists them)\n", name);
    return 2;
}

int main(int argc, char **argv)
{
    int code = run(argc, argv);
    bool lost = fflush(stdout) != 0 || ferror(stdout);
    return lost && code == 0 ? cli_fail("cannot write the output") : code;
}
