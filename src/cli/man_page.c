/* man_page.c - `radish man`: the pages radish-COMMAND(1), in mdoc.
 *
 * Every command is called for its table alone (cli_show_table), so a page has the options that its
 * --help has, in the same words. What a table has no room for stands in docs/man/COMMAND.mdoc:
 * sections that go between the options and the examples.
 *
 *     NAME SYNOPSIS DESCRIPTION OPTIONS    of the table
 *     FILES SIGNALS ...                    of the file, where there is one
 *     EXIT STATUS EXAMPLES SEE ALSO        of the table
 *
 * Text is the user's word for word: what roff would take for its own is escaped. */
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <radish_commit.h> /* made by cmake/commit.cmake */
#include <stdio.h>
#include <stdlib.h>

/* A page on its way. */
typedef struct page {
    FILE *out;
    const char *name;  /* "inspect-store" */
    const char *about; /* a line */
    const char *prose; /* of docs/man; NULL: none */
    size_t prose_len;
} page;

/* `len` bytes of a line. `literal`: a minus stays one, as a shell wants it. */
static void put_words(FILE *out, const char *text, size_t len, bool literal)
{
    if (len && (*text == '.' || *text == '\'')) fputs("\\&", out);
    for (size_t i = 0; i < len; i++) {
        const bool option = text[i] == '-' && (literal || (i + 1 < len && text[i + 1] == '-') ||
                                               (i && text[i - 1] == '-'));
        if (text[i] == '\\')
            fputs("\\e", out);
        else if (option)
            fputs("\\-", out);
        else
            fputc(text[i], out);
    }
}

/* A line of running text; each sentence begins a line, as roff wants it. */
static void put_sentences(FILE *out, const char *text, size_t len)
{
    size_t from = 0;
    for (size_t i = 1; i + 1 < len; i++) {
        const bool ends = (text[i - 1] == '.' || text[i - 1] == '?') && text[i] == ' ';
        if (!ends || !isupper((unsigned char)text[i + 1])) continue;
        put_words(out, text + from, i - from, false);
        fputc('\n', out);
        from = i + 1;
    }
    put_words(out, text + from, len - from, false);
    fputc('\n', out);
}

/* Lines: those that begin with a blank stand as they are, an empty one parts paragraphs. */
static void put_text(FILE *out, const char *text)
{
    bool literal = false, parted = false;
    while (*text) {
        const size_t len = strcspn(text, "\n");
        const bool stands = *text == ' ';
        if (len && stands != literal) {
            fputs(stands ? ".Bd -literal -offset 2n\n" : ".Ed\n", out);
            if (!stands) parted = true; /* .Ed parts no paragraph */
            literal = stands;
        }
        if (len && parted && !literal) fputs(".Pp\n", out);
        if (len) parted = false;
        if (literal && len) {
            put_words(out, text, len, true);
            fputc('\n', out);
        } else if (literal) {
            fputc('\n', out);
        } else if (len) {
            put_sentences(out, text, len);
        } else {
            parted = true;
        }
        text += len + (text[len] == '\n');
    }
    if (literal) fputs(".Ed\n", out);
}

static void put_option(FILE *out, const cli_option *o)
{
    fputs(".It ", out);
    if (o->letter) fprintf(out, "Fl %c , ", o->letter);
    fprintf(out, "Fl -%s", o->name);
    if (o->arg) fprintf(out, " Ar %s", o->arg);
    fputc('\n', out);
    put_text(out, o->help);
}

static void put_options(FILE *out, const cli_option *options, unsigned count)
{
    bool inside = false;
    fputs(".Sh OPTIONS\n", out);
    for (unsigned i = 0; i < count; i++) {
        const cli_option *o = &options[i];
        if (o->kind == CLI_HEADING) {
            if (inside) fputs(".El\n", out);
            inside = false;
            fprintf(out, ".Ss %.*s\n", (int)strcspn(o->help, ":\n"), o->help);
            const char *rest = strchr(o->help, '\n');
            if (rest) put_text(out, rest + 1);
            continue;
        }
        if (!inside) fputs(".Bl -tag -width Ds\n", out);
        inside = true;
        put_option(out, o);
    }
    if (inside) fputs(".El\n", out);
}

/* What is behind "Example:", or all of it. */
static void put_examples(FILE *out, const char *text)
{
    fputs(".Sh EXAMPLES\n", out);
    if (!strncmp(text, "Example", 7)) text += strcspn(text, "\n");
    put_text(out, text + strspn(text, "\n"));
}

static void put_page(void *user, const cli_manual *m, const cli_option *options, unsigned count,
                     bool takes_word)
{
    (void)takes_word;
    const page *p = user;
    FILE *out = p->out;
    fprintf(out, ".\\\" Made by `radish man %s`.\n.Dd %s\n.Dt RADISH-", p->name, RADISH_DATE);
    for (const char *c = p->name; *c; c++)
        fputc(toupper((unsigned char)*c), out);
    fprintf(out, " 1\n.Os radish %s\n.Sh NAME\n.Nm radish-%s\n.Nd ", RADISH_VERSION, p->name);
    put_words(out, p->about, strlen(p->about), false);
    fputs("\n.Sh SYNOPSIS\n.Nm radish\n", out);
    put_words(out, m->usage, strlen(m->usage), true);
    fputs("\n.Sh DESCRIPTION\n", out);
    put_text(out, m->about);
    if (count) put_options(out, options, count);
    if (p->prose) fwrite(p->prose, 1, p->prose_len, out);
    fputs(".Sh EXIT STATUS\n0 fine, 1 an error (one line on stderr), 2 a mistake in the usage.\n",
          out);
    if (m->after) put_examples(out, m->after);
    fputs(".Sh SEE ALSO\n.Xr radish 1\n", out);
}

/* Where `radish man` writes, and what it adds. */
typedef struct pages {
    const char *only;   /* the name of one; NULL: all, */
    const char *folder; /* into this one */
    const char *prose;  /* docs/man, or NULL */
    unsigned written;
} pages;

/* The sections that docs/man has for a page: *text is NULL where it has none. */
static int read_prose(const pages *all, const char *name, char **text, size_t *len)
{
    char path[4096];
    *text = NULL;
    if (!all->prose) return 0;
    snprintf(path, sizeof path, "%s/%s.mdoc", all->prose, name);
    FILE *there = fopen(path, "rb");
    if (!there)
        return errno == ENOENT ? 0 : cli_fail("cannot open '%s': %s", path, strerror(errno));
    fclose(there);
    *text = cli_read_file(path, len);
    return *text ? 0 : 1;
}

static int write_page(pages *all, const cli_command *c, const char *before)
{
    char name[64], path[4096];
    page p = {.out = stdout, .name = name, .about = c->about};
    snprintf(name, sizeof name, "%s%s", before, c->name);
    if (all->only && strcmp(all->only, name) != 0) return 0;
    char *prose = NULL;
    int code = read_prose(all, name, &prose, &p.prose_len);
    if (code) return code;
    p.prose = prose;
    snprintf(path, sizeof path, "%s/radish-%s.1", all->folder ? all->folder : "", name);
    if (all->folder) p.out = fopen(path, "wb");
    if (p.out) {
        all->written++;
        cli_show_table(c->run, put_page, &p);
    }
    const bool lost = !p.out || ferror(p.out) || (all->folder && fclose(p.out) != 0);
    free(prose);
    return lost ? cli_fail("cannot write '%s': %s", path, strerror(errno)) : 0;
}

static int write_pages(pages *all, const cli_command *commands, const char *before)
{
    int code = 0;
    for (const cli_command *c = commands; c->name && !code; c++)
        code = c->run == cmd_inspect ? write_pages(all, cli_inspect_subjects, "inspect-")
                                     : write_page(all, c, before);
    return code;
}

int cmd_man(int argc, char **argv)
{
    pages all = {0};
    const cli_manual manual = {
        .command = "man",
        .words = "",
        .usage = "man COMMAND | man --write DIR [--prose DIR]",
        .about =
            "Prints the manual page of a command, for man(1): what its --help says. make install\n"
            "and the Debian package put all of them where man finds them, with more on some\n"
            "commands.",
        .after = "Examples:\n"
                 "  radish man serve | man -l -\n"
                 "  radish man inspect-store | man -l -",
    };
    const cli_option options[] = {
        {.kind = CLI_TEXT,
         .name = "write",
         .arg = "DIR",
         .target = &all.folder,
         .help = "Write the pages of all commands into this folder instead, as radish-COMMAND.1."},
        {.kind = CLI_TEXT,
         .name = "prose",
         .arg = "DIR",
         .target = &all.prose,
         .help = "Sections that go behind the options: COMMAND.mdoc in this folder (docs/man of\n"
                 "the sources)."},
    };
    const int code = cli_parse(&manual, options, RAD_COUNT(options), argc, argv, &all.only);
    if (code != CLI_GO_ON) return code;
    if (!all.only == !all.folder)
        return cli_usage("man", "of which command? Or --write DIR, of all of them");
    const int failed = write_pages(&all, cli_commands, "");
    if (!failed && !all.written)
        return cli_usage("man",
                         "there is no page of '%s' (radish help lists the commands; those "
                         "of inspect are inspect-cache and inspect-store)",
                         all.only);
    return failed;
}
