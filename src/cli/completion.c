/* completion.c - `radish completion`: a script for bash, which zsh's bashcompinit takes as well
 * (completion_fish.c has fish's).
 *
 * Every command is called for its table alone (cli_show_table), so what is completed is what its
 * --help has. The script is a function that knows the tables as `case`, and one that finds out what
 * the word under the cursor is: a command, an option, an option's value, a file. */
#include "cli/completion.h"
#include "cli/cli.h"

#include <stdio.h>

/* Words of one kind, as a pattern of case: -m|--model-path */
static void print_names(const cli_option *o, const char *between)
{
    if (o->letter) printf("-%c%s", o->letter, between);
    printf("--%s", o->name);
}

completion_value completion_value_of(const cli_option *o)
{
    const bool text = o->kind == CLI_TEXT || o->kind == CLI_LIST || o->kind == CLI_CONFIG;
    if (o->kind == CLI_FLAG) return COMPLETION_NONE;
    if (o->values || strchr(o->arg, '|')) return COMPLETION_CHOICE;
    const bool file = !strcmp(o->arg, "FILE") || !strcmp(o->arg, "F") || !strcmp(o->arg, "DIR");
    return text && file ? COMPLETION_FILE : COMPLETION_WORD;
}

/* What is in brackets is said about a choice, and is none. */
void completion_print_choices(const cli_option *o)
{
    const char *before = "";
    for (const char *at = o->values ? o->values : o->arg; *at;) {
        const size_t between = strspn(at, " ,|"), word = strcspn(at += between, " ,|([");
        if (word && !(word == 2 && !memcmp(at, "or", 2))) {
            printf("%s%.*s", before, (int)word, at);
            before = " ";
        }
        at += word;
        if (*at == '(' || *at == '[') at += strcspn(at, ")]");
        if (*at == ')' || *at == ']') at++;
    }
}

const char *completion_words(const cli_manual *m, bool takes_word)
{
    return !takes_word ? "" : m->words ? m->words : COMPLETION_A_FILE;
}

static void print_table(void *user, const cli_manual *m, const cli_option *options, unsigned count,
                        bool takes_word)
{
    (void)user;
    printf("    '%s')\n        options='", m->command);
    for (unsigned i = 0; i < count; i++) {
        if (options[i].kind == CLI_HEADING) continue;
        print_names(&options[i], " ");
        putchar(' ');
    }
    const char *words = completion_words(m, takes_word);
    printf("-h --help' word='%s'\n", *words ? words : "none");
    printf("        case $option in\n");
    for (unsigned i = 0; i < count; i++) {
        const cli_option *o = &options[i];
        if (o->kind == CLI_HEADING || o->kind == CLI_FLAG) continue;
        printf("        ");
        print_names(o, "|");
        printf(") value=");
        switch (completion_value_of(o)) {
        case COMPLETION_FILE: printf("file"); break;
        case COMPLETION_CHOICE:
            putchar('\'');
            completion_print_choices(o);
            putchar('\'');
            break;
        default: printf("none"); break;
        }
        printf(" ;;\n");
    }
    printf("        esac ;;\n");
}

#define SHELLS "bash zsh fish"

static void print_tables(const cli_command *commands)
{
    for (const cli_command *c = commands; c->name; c++) {
        if (c->run == cmd_inspect) {
            print_tables(cli_inspect_subjects);
            continue;
        }
        cli_show_table(c->run, print_table, NULL);
    }
}

static void print_all(const cli_command *commands)
{
    for (const cli_command *c = commands; c->name; c++)
        printf("%s%s", c == commands ? "" : " ", c->name);
}

static const char logic[] =
    "_radish() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} "
    "command=${COMP_WORDS[1]}\n"
    "    local before= option=$prev options= word=none value= found line\n"
    "    COMPREPLY=()\n"
    "    # --option=value is three words in bash, one in zsh.\n"
    "    case $cur in\n"
    "    --*=*) before=${cur%%=*}= option=${cur%%=*} cur=${cur#*=} ;;\n"
    "    =) cur= ;;\n"
    "    *) [ \"$prev\" = = ] && option=${COMP_WORDS[COMP_CWORD-2]} ;;\n"
    "    esac\n"
    "    case $command in\n"
    "    inspect) [ $COMP_CWORD -gt 2 ] && command=\"inspect ${COMP_WORDS[2]}\" ;;\n"
    "    esac\n"
    "    if [ $COMP_CWORD -eq 1 ]; then\n"
    "        value=\"$(_radish_commands) help --help --version\"\n"
    "    elif [ $COMP_CWORD -eq 2 ] && [ \"$command\" = help ]; then\n"
    "        value=$(_radish_commands)\n"
    "    elif [ $COMP_CWORD -eq 2 ] && [ \"$command\" = inspect ]; then\n"
    "        value=\"$(_radish_subjects) --help\"\n"
    "    elif [ $COMP_CWORD -eq 2 ] && [ \"$command\" = man ] && [ \"${cur#-}\" = \"$cur\" ]; "
    "then\n"
    "        value=$(_radish_commands)\n"
    "        value=${value/inspect/inspect-cache inspect-store}\n"
    "    else\n"
    "        _radish_table\n"
    "        case $value$cur in\n"
    "        -*) value=$options ;;\n"
    "        *) value=${value:-$word} ;;\n"
    "        esac\n"
    "    fi\n"
    "    case $value in\n"
    "    none) return ;;\n"
    "    file)\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        found=$(compgen -f -- \"$cur\") ;;\n"
    "    *) found=$(compgen -W \"$value\" -- \"$cur\") ;;\n"
    "    esac\n"
    "    while IFS= read -r line; do\n"
    "        [ -n \"$line\" ] && COMPREPLY+=(\"$before$line\")\n"
    "    done <<END\n"
    "$found\n"
    "END\n"
    "}\n"
    "complete -F _radish radish\n";

int cmd_completion(int argc, char **argv)
{
    const char *shell = NULL;
    const cli_manual manual = {
        .command = "completion",
        .words = SHELLS,
        .usage = "completion bash|zsh|fish",
        .about =
            "Prints what the shell wants to complete commands, options, their values and files;\n"
            "make install and the Debian package put bash's and fish's where they find them.",
        .after = "Examples:\n\n"
                 "  source <(radish completion bash)     # in ~/.bashrc\n"
                 "  source <(radish completion zsh)      # in ~/.zshrc, behind compinit\n"
                 "  radish completion fish | source      # in ~/.config/fish/config.fish\n",
    };
    const int code = cli_parse(&manual, NULL, 0, argc, argv, &shell);
    if (code != CLI_GO_ON) return code;
    const bool zsh = shell && !strcmp(shell, "zsh"), fish = shell && !strcmp(shell, "fish");
    if (!shell || (!zsh && !fish && strcmp(shell, "bash") != 0))
        return cli_usage("completion", "for which shell? bash, zsh or fish");
    printf("# Made by `radish completion %s` of radish %s.\n", shell, RADISH_VERSION);
    if (fish) {
        completion_print_fish();
        return 0;
    }
    if (zsh) printf("autoload -U +X bashcompinit && bashcompinit\n");
    printf("_radish_commands() { echo '");
    print_all(cli_commands);
    printf("'; }\n_radish_subjects() { echo '");
    print_all(cli_inspect_subjects);
    printf("'; }\n\n# Of the command `command` and its option `option`.\n"
           "_radish_table() {\n    case $command in\n");
    print_tables(cli_commands);
    printf("    esac\n}\n\n%s", logic);
    return 0;
}
