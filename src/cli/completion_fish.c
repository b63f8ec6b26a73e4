/* completion_fish.c - `radish completion fish`: a line for each command and option, with what its
 * --help begins with. */
#include "cli/cli.h"
#include "cli/completion.h"

#include <stdio.h>

/* In single quotes. */
static void print_quoted(const char *text, size_t len)
{
    putchar('\'');
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\'' || text[i] == '\\') putchar('\\');
        putchar(text[i] == '\n' ? ' ' : text[i]);
    }
    putchar('\'');
}

/* As far as the first sentence goes, of a line and a half at most. */
static size_t first_sentence(const char *text)
{
    enum { MOST = 120 };
    size_t len = 0;
    while (text[len] && len < MOST &&
           !(text[len] == '.' && (text[len + 1] == ' ' || !text[len + 1])) &&
           !(text[len] == '.' && text[len + 1] == '\n'))
        len++;
    while (len == MOST && len > 1 && text[len] != ' ' && text[len] != '\n')
        len--;
    return len;
}

/* complete -c radish -n '__radish_is inspect cache' */
static void print_condition(const char *command)
{
    printf("complete -c radish -n '__radish_is %s'", command);
}

static void print_option(const char *command, const cli_option *o)
{
    print_condition(command);
    if (o->letter) printf(" -s %c", o->letter);
    printf(" -l %s", o->name);
    switch (completion_value_of(o)) {
    case COMPLETION_NONE: break;
    case COMPLETION_WORD: printf(" -x"); break;
    case COMPLETION_FILE: printf(" -rF"); break;
    case COMPLETION_CHOICE:
        printf(" -x -a '");
        completion_print_choices(o);
        putchar('\'');
        break;
    }
    printf(" -d ");
    print_quoted(o->help, first_sentence(o->help));
    putchar('\n');
}

static void print_table(void *user, const cli_manual *m, const cli_option *options, unsigned count,
                        bool takes_word)
{
    (void)user;
    for (unsigned i = 0; i < count; i++)
        if (options[i].kind != CLI_HEADING) print_option(m->command, &options[i]);
    print_condition(m->command);
    printf(" -s h -l help -d 'Its manual'\n");
    const char *words = completion_words(m, takes_word);
    if (!*words) return;
    print_condition(m->command);
    if (!strcmp(words, COMPLETION_A_FILE))
        printf(" -F\n");
    else
        printf(" -a '%s'\n", words);
}

/* Of `commands`, with what stands before their names. */
static void print_names(const cli_command *commands, const char *before, const char *condition)
{
    for (const cli_command *c = commands; c->name; c++) {
        printf("complete -c radish -n '%s' -a %s%s -d ", condition, before, c->name);
        print_quoted(c->about, strlen(c->about));
        putchar('\n');
    }
}

static void print_tables(const cli_command *commands)
{
    for (const cli_command *c = commands; c->name; c++) {
        if (c->run == cmd_inspect) {
            print_names(cli_inspect_subjects, "", "__radish_at 2; and __radish_is inspect");
            print_tables(cli_inspect_subjects);
            continue;
        }
        cli_show_table(c->run, print_table, NULL);
    }
}

void completion_print_fish(void)
{
    printf("function __radish_at # so many words stand before the cursor's\n"
           "    test (count (commandline -opc)) -eq $argv[1]\n"
           "end\n"
           "function __radish_is # of this command, and this subject\n"
           "    set -l words (commandline -opc)\n"
           "    test \"$words[2]\" = $argv[1]; or return 1\n"
           "    test (count $argv) -eq 1; or test \"$words[3]\" = $argv[2]\n"
           "end\n"
           "complete -c radish -f\n"
           "complete -c radish -n '__radish_at 1' -a help -d 'the commands, or the manual of one'\n"
           "complete -c radish -n '__radish_at 1' -s h -l help -d 'The commands'\n"
           "complete -c radish -n '__radish_at 1' -l version -d 'Which build this is'\n");
    print_names(cli_commands, "", "__radish_at 1");
    print_names(cli_commands, "", "__radish_at 2; and __radish_is help");
    print_names(cli_commands, "", "__radish_at 2; and __radish_is man");
    print_names(cli_inspect_subjects, "inspect-", "__radish_at 2; and __radish_is man");
    print_tables(cli_commands);
}
