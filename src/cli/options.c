/* options.c - walks argv along the table. */
#include "cli/cli.h"
#include "cli/flag_words.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int mistake(const cli_manual *m, const char *fmt, const char *a, const char *b)
{
    fprintf(stderr, "radish %s: ", m->command);
    fprintf(stderr, fmt, a, b);
    fprintf(stderr, " (radish %s --help is the manual)\n", m->command);
    return 2;
}

static void print_lines(const char *text, int indent)
{
    while (*text) {
        int len = (int)strcspn(text, "\n");
        printf("%*s%.*s\n", len ? indent : 0, "", len, text);
        text += len;
        if (*text) text++;
    }
}

static void print_manual(const cli_manual *m, const cli_option *options, unsigned count)
{
    printf("usage: radish %s\n\n", m->usage);
    print_lines(m->about, 0);
    for (unsigned i = 0; i < count; i++) {
        const cli_option *o = &options[i];
        char left[64];
        if (o->kind == CLI_HEADING) {
            printf("\n%s\n", o->help);
            continue;
        }
        snprintf(left, sizeof left, "  %c%c%s--%s%s%s", o->letter ? '-' : ' ',
                 o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name, o->arg ? " " : "",
                 o->arg ? o->arg : "");
        printf("%s\n", left);
        print_lines(o->help, 10);
    }
    printf("\n  -h, --help\n          This manual.\n");
    if (m->after) {
        printf("\n");
        print_lines(m->after, 0);
    }
}

/* The bounds of an integer kind, narrowed by the option's own. */
static void bounds(const cli_option *o, double *min, double *max)
{
    switch (o->kind) {
    case CLI_U16: *min = 0, *max = UINT16_MAX; break;
    case CLI_U32: *min = 0, *max = UINT32_MAX; break;
    case CLI_I32: *min = INT32_MIN, *max = INT32_MAX; break;
    case CLI_I64: *min = -9e15, *max = 9e15; break;
    case CLI_U64: *min = 0, *max = 1.8e19; break;
    default: *min = -1e30, *max = 1e30; break;
    }
    if (o->min != 0 || o->max != 0) *min = o->min, *max = o->max;
}

static bool store_number(const cli_option *o, const char *text)
{
    double min, max, value;
    char *end = NULL;
    long long number = 0;
    unsigned long long big = 0;
    bounds(o, &min, &max);
    errno = 0;
    if (o->kind == CLI_F32 || o->kind == CLI_F64) {
        value = strtod(text, &end);
    } else if (o->kind == CLI_U64) {
        if (strchr(text, '-')) return false;
        big = strtoull(text, &end, 0);
        value = (double)big;
    } else {
        number = strtoll(text, &end, 10);
        value = (double)number;
    }
    if (errno || end == text || *end || !(value >= min && value <= max)) return false;
    switch (o->kind) {
    case CLI_U16: *(uint16_t *)o->target = (uint16_t)number; break;
    case CLI_U32: *(uint32_t *)o->target = (uint32_t)number; break;
    case CLI_I32: *(int32_t *)o->target = (int32_t)number; break;
    case CLI_I64: *(int64_t *)o->target = number; break;
    case CLI_U64: *(uint64_t *)o->target = big; break;
    case CLI_F32: *(float *)o->target = (float)value; break;
    default: *(double *)o->target = value; break;
    }
    return true;
}

/* `where`: "", or "file:line: " of what is read. */
static int store(const cli_manual *m, const cli_option *o, const char *where, const char *text)
{
    if (o->given) *o->given = true;
    if (o->kind == CLI_TEXT) {
        *(const char **)o->target = text;
        return CLI_GO_ON;
    }
    if (o->kind == CLI_LIST) {
        cli_list *list = o->target;
        if (list->count == CLI_LIST_MAX)
            return mistake(m, "%s--%s is given too often", where, o->name);
        list->texts[list->count++] = text;
        return CLI_GO_ON;
    }
    if (store_number(o, text)) return CLI_GO_ON;
    double min, max;
    char range[80] = "";
    bool real = o->kind == CLI_F32 || o->kind == CLI_F64;
    bounds(o, &min, &max);
    if (o->kind == CLI_U64 && !o->max)
        snprintf(range, sizeof range, " from %.0f on", min);
    else if (o->min != 0 || o->max != 0 || !real)
        snprintf(range, sizeof range, real ? " from %g to %g" : " from %.0f to %.0f", min, max);
    fprintf(stderr, "radish %s: %s--%s wants a %snumber%s, not '%s'\n", m->command, where, o->name,
            real ? "" : "whole ", range, text);
    return 2;
}

static const cli_option *find(const cli_option *options, unsigned count, const char *word,
                              size_t len, bool letter)
{
    for (unsigned i = 0; i < count; i++) {
        const cli_option *o = &options[i];
        if (o->kind == CLI_HEADING) continue;
        if (letter ? o->letter == *word : strlen(o->name) == len && !strncmp(o->name, word, len))
            return o;
    }
    return NULL;
}

const char *cli_wrap(char *text, size_t size, const char *format, ...)
{
    enum { COLUMNS = 80 };
    va_list args;
    va_start(args, format);
    vsnprintf(text, size, format, args);
    va_end(args);
    char *line = text;
    for (char *at = text; *at; at++) {
        if (*at != ' ') continue;
        char *next = strchr(at + 1, ' ');
        if (!next) next = at + strlen(at);
        if (next - line <= COLUMNS) continue;
        *at = '\n';
        line = at + 1;
    }
    return text;
}

/* A word of the command line, and what it means. */
typedef struct cli_word {
    const cli_option *option; /* NULL: not an option, */
    const char *value;        /* but this word; or the option's, NULL for a flag */
    bool help;
} cli_word;

typedef struct cli_words {
    int argc, at;
    char **argv;
    bool only_words; /* after -- */
} cli_words;

/* CLI_GO_ON, or 2. There is a word. */
static int next_word(const cli_manual *m, const cli_option *options, unsigned count, cli_words *w,
                     cli_word *out)
{
    const char *word = w->argv[w->at++];
    *out = (cli_word){0};
    if (w->only_words || word[0] != '-' || !word[1]) {
        out->value = word;
        return CLI_GO_ON;
    }
    if (!strcmp(word, "--")) {
        w->only_words = true;
        return CLI_GO_ON;
    }
    out->help = !strcmp(word, "--help") || !strcmp(word, "-h");
    if (out->help) return CLI_GO_ON;
    if (word[1] == '-') {
        const char *equals = strchr(word, '=');
        out->option = find(options, count, word + 2,
                           equals ? (size_t)(equals - word - 2) : strlen(word + 2), false);
        out->value = equals ? equals + 1 : NULL;
    } else {
        out->option = find(options, count, word + 1, 1, true);
        out->value = word[2] ? word + 2 : NULL;
    }
    const cli_option *o = out->option;
    if (!o) return mistake(m, "there is no option '%s'%s", word, "");
    if (o->kind == CLI_FLAG)
        return out->value ? mistake(m, "--%s takes no value%s", o->name, "") : CLI_GO_ON;
    if (!out->value && w->at == w->argc)
        return mistake(m, "--%s wants a value: %s", o->name, o->arg);
    if (!out->value) out->value = w->argv[w->at++];
    return CLI_GO_ON;
}

static void set_flag(const cli_option *o)
{
    *(bool *)o->target = true;
    if (o->given) *o->given = true;
}

/* One line of a config file. CLI_GO_ON, or 2. */
static int take_line(const cli_manual *m, const cli_option *options, unsigned count,
                     const config_file *file, const char *name, const char *value)
{
    const cli_option *o = find(options, count, name, strlen(name), false);
    const char *wrong = NULL;
    if (!o)
        wrong = "there is no such option";
    else if (o->kind == CLI_CONFIG)
        wrong = "a config file names no other";
    else if (o->kind == CLI_FLAG && value && strcmp(value, "true") && strcmp(value, "false"))
        wrong = "it is alone, or true, or false";
    else if (o->kind != CLI_FLAG && !value)
        wrong = "it wants a value";
    if (wrong) {
        fprintf(stderr, "radish %s: %s:%u: '%s': %s (radish %s --help is the manual)\n", m->command,
                file->path, file->line, name, wrong, m->command);
        return 2;
    }
    if (o->kind != CLI_FLAG) {
        char where[300];
        snprintf(where, sizeof where, "%.260s:%u: ", file->path, file->line);
        return store(m, o, where, value);
    }
    if (!value || !strcmp(value, "true")) set_flag(o);
    return CLI_GO_ON;
}

/* All lines of the file at `path`. CLI_GO_ON, or 2. */
static int read_config(const cli_manual *m, const cli_option *options, unsigned count,
                       const cli_option *config, const char *path)
{
    config_file *file = config->target;
    rad_error err = {0};
    if (file->text) return mistake(m, "--%s is given twice%s", config->name, "");
    rad_status status = config_file_open(file, path, &err);
    while (status == RAD_OK) {
        const char *name, *value;
        status = config_file_next(file, &name, &value, &err);
        if (status != RAD_OK) break;
        if (!name) return CLI_GO_ON;
        const int code = take_line(m, options, count, file, name, value);
        if (code != CLI_GO_ON) return code;
    }
    fprintf(stderr, "radish %s: %s\n", m->command, err.text);
    return 2;
}

static cli_show showing; /* NULL: a command does what it is for */
static void *show_user;

void cli_show_table(int (*run)(int argc, char **argv), cli_show show, void *user)
{
    showing = show;
    show_user = user;
    run(0, NULL);
    showing = NULL;
}

int cli_parse(const cli_manual *m, const cli_option *options, unsigned count, int argc, char **argv,
              const char **positional)
{
    if (showing) {
        showing(show_user, m, options, count, positional != NULL);
        return 0;
    }
    flag_words_set(options, count);
    /* The config file first, wherever it is named, so that the command line's word counts. */
    for (int pass = 0; pass < 2; pass++) {
        cli_words words = {.argc = argc, .argv = argv};
        while (words.at < argc) {
            cli_word w;
            int code = next_word(m, options, count, &words, &w);
            if (code != CLI_GO_ON) return code;
            if (w.help) {
                print_manual(m, options, count);
                return 0;
            }
            const cli_option *o = w.option;
            const bool config = o && o->kind == CLI_CONFIG;
            if (config != (pass == 0) || (!o && !w.value)) continue;
            if (config) {
                code = read_config(m, options, count, o, w.value);
            } else if (!o) {
                if (!positional || *positional) return mistake(m, "what is '%s'?%s", w.value, "");
                *positional = w.value;
            } else if (o->kind == CLI_FLAG) {
                set_flag(o);
            } else {
                code = store(m, o, "", w.value);
            }
            if (code != CLI_GO_ON) return code;
        }
    }
    return CLI_GO_ON;
}
