/* line_input.c - what a terminal says, a character at a time, while Ctrl-C may come.
 *
 * SIGINT is a counter (eventfd) beside stdin and not a flag: one that comes before the wait for
 * input has begun must end this wait too, and any thread may get the signal. The wait is ours with
 * libedit as well (EL_GETCFN): by itself it would begin a read anew that a signal ended. */
#include "cli/line_input.h"

#include "base/base.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>
#ifdef RADISH_HAVE_EDIT
#include <histedit.h>
#endif

enum { HISTORY_LINES = 1000 };

struct line_input {
    char *prompt, *history_path;
    const char *const *words;
    char *line;
    size_t cap;
    bool terminal, at_prompt; /* at_prompt: the next character begins a line */
#ifdef RADISH_HAVE_EDIT
    EditLine *edit;
    History *history;
#endif
};

static int interrupts = -1;

static void on_interrupt(int number)
{
    uint64_t one = 1;
    int before = errno;
    ssize_t n = write(interrupts, &one, sizeof one);
    (void)n;
    (void)number;
    errno = before;
}

static bool take_interrupts(void)
{
    uint64_t count;
    return read(interrupts, &count, sizeof count) == sizeof count;
}

/* False: Ctrl-C came first. */
static bool wait_for_input(void)
{
    struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                           {.fd = interrupts, .events = POLLIN}};
    while (poll(fds, 2, -1) < 0 && errno == EINTR)
        ;
    return fds[1].revents == 0;
}

void line_input_prepare(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
}

bool line_input_is_terminal(const line_input *in)
{
    return in->terminal;
}

bool line_input_history_path(const char *name, char *path, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int len = 0;
    if (state && state[0] == '/')
        len = snprintf(path, size, "%s/radish/%s", state, name);
    else if (home && home[0] == '/')
        len = snprintf(path, size, "%s/.local/state/radish/%s", home, name);
    if (len <= 0 || (size_t)len >= size) return false;
    for (char *at = path + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = 0;
        int made = mkdir(path, 0700);
        *at = '/';
        if (made != 0 && errno != EEXIST) return false;
    }
    return true;
}

/* ---- with libedit ---- */

#ifdef RADISH_HAVE_EDIT

bool line_input_can_edit(void)
{
    return true;
}

static char *prompt_of(EditLine *edit)
{
    line_input *in;
    el_get(edit, EL_CLIENTDATA, &in);
    return in->prompt;
}

/* libedit's way to a character: 1; 0 at the end; -1 after a Ctrl-C, which ends the line. */
static int get_char(EditLine *edit, wchar_t *out)
{
    mbstate_t state = {0};
    (void)edit;
    for (;;) {
        char byte;
        if (!wait_for_input()) return -1;
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) return (int)n;
        size_t size = mbrtowc(out, &byte, 1, &state);
        if (size == (size_t)-1) { /* not of this locale: it is left out */
            state = (mbstate_t){0};
            continue;
        }
        if (size != (size_t)-2) return 1;
    }
}

/* Tab: the rest of the only word that begins like the line. */
static unsigned char complete(EditLine *edit, int key)
{
    line_input *in;
    const LineInfo *typed = el_line(edit);
    const size_t len = (size_t)(typed->cursor - typed->buffer);
    const char *found = NULL;
    (void)key;
    el_get(edit, EL_CLIENTDATA, &in);
    for (const char *const *word = in->words; word && *word && len; word++) {
        if (strncmp(*word, typed->buffer, len) != 0) continue;
        if (found) return CC_ERROR;
        found = *word;
    }
    if (!found || el_insertstr(edit, found + len) != 0) return CC_ERROR;
    return CC_REFRESH;
}

static void open_editor(line_input *in)
{
    HistEvent event;
    in->edit = el_init("radish", stdin, stdout, stderr);
    in->history = in->edit ? history_init() : NULL;
    if (!in->history) {
        if (in->edit) el_end(in->edit);
        in->edit = NULL;
        return;
    }
    el_set(in->edit, EL_CLIENTDATA, in);
    el_set(in->edit, EL_PROMPT, prompt_of);
    el_set(in->edit, EL_EDITOR, "emacs");
    el_set(in->edit, EL_GETCFN, get_char);
    el_set(in->edit, EL_HIST, history, in->history);
    el_set(in->edit, EL_ADDFN, "radish-complete", "complete a command", complete);
    el_set(in->edit, EL_BIND, "^I", "radish-complete", NULL);
    el_set(in->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(in->edit, NULL);
    history(in->history, &event, H_SETSIZE, HISTORY_LINES);
    history(in->history, &event, H_SETUNIQUE, 1);
    if (in->history_path) history(in->history, &event, H_LOAD, in->history_path);
}

static void close_editor(line_input *in)
{
    HistEvent event;
    if (!in->edit) return;
    if (in->history_path) {
        mode_t before = umask(077); /* what was asked is its asker's */
        history(in->history, &event, H_SAVE, in->history_path);
        umask(before);
    }
    history_end(in->history);
    el_end(in->edit);
}

static void remember(line_input *in)
{
    HistEvent event;
    if (in->edit && in->line[0] && in->line[0] != '\n')
        history(in->history, &event, H_ENTER, in->line);
}

/* A line with its end into in->line from `at` on; its length, -1: none came. */
static ssize_t edited_line(line_input *in, size_t at)
{
    int count = 0;
    el_resize(in->edit);
    const char *typed = el_gets(in->edit, &count);
    if (!typed || count <= 0) return -1;
    const size_t len = (size_t)count;
    if (in->cap < at + len + 1) {
        char *more = realloc(in->line, at + len + 1);
        if (!more) return -1;
        in->line = more;
        in->cap = at + len + 1;
    }
    memcpy(in->line + at, typed, len);
    in->line[at + len] = 0;
    return (ssize_t)len;
}

#else

bool line_input_can_edit(void)
{
    return false;
}

static void open_editor(line_input *in)
{
    (void)in;
}

static void close_editor(line_input *in)
{
    (void)in;
}

static void remember(line_input *in)
{
    (void)in;
}

#endif

/* ---- a line ---- */

line_input *line_input_open(const char *prompt, const char *history, const char *const *words)
{
    line_input *in = calloc(1, sizeof *in);
    if (!in) return NULL;
    in->prompt = strdup(prompt);
    in->history_path = history ? strdup(history) : NULL;
    in->words = words;
    in->terminal = isatty(STDIN_FILENO);
    if (!in->prompt || (history && !in->history_path)) {
        line_input_close(in);
        return NULL;
    }
    if (in->terminal) {
        interrupts = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        setvbuf(stdin, NULL, _IONBF, 0); /* what poll sees is all there is */
        if (isatty(STDOUT_FILENO)) open_editor(in);
    }
    return in;
}

void line_input_close(line_input *in)
{
    if (!in) return;
    close_editor(in);
    if (interrupts >= 0) close(interrupts);
    interrupts = -1;
    free(in->prompt);
    free(in->history_path);
    free(in->line);
    free(in);
}

/* As getline, from `at` on. */
static ssize_t plain_line(line_input *in, size_t at)
{
    char *piece = NULL;
    size_t cap = 0;
    ssize_t len = getline(&piece, &cap, stdin);
    if (len >= 0) {
        char *more = realloc(in->line, at + (size_t)len + 1);
        if (more) {
            in->line = more;
            in->cap = at + (size_t)len + 1;
            memcpy(in->line + at, piece, (size_t)len + 1);
        } else {
            len = -1;
        }
    }
    free(piece);
    return len;
}

static ssize_t one_line(line_input *in, size_t at)
{
#ifdef RADISH_HAVE_EDIT
    if (in->edit) return edited_line(in, at);
#endif
    if (in->terminal) {
        fputs(at ? "  " : in->prompt, stdout);
        fflush(stdout);
        if (!wait_for_input()) return -1;
    }
    return plain_line(in, at);
}

/* Lines up to one without a backslash at its end. */
static ssize_t whole_line(line_input *in)
{
    size_t at = 0;
    for (;;) {
        ssize_t len = one_line(in, at);
        if (len < 0) return at && !in->terminal ? (ssize_t)at : -1;
        at += (size_t)len;
        while (at && (in->line[at - 1] == '\n' || in->line[at - 1] == '\r'))
            in->line[--at] = 0;
        if (!at || in->line[at - 1] != '\\') return (ssize_t)at;
        in->line[at - 1] = '\n';
    }
}

ssize_t line_input_read(line_input *in, char **line)
{
    /* Without SA_RESTART, so that a read of half a line ends. */
    struct sigaction on = {.sa_handler = on_interrupt}, before;
    ssize_t len = -1;
    fflush(stdout);
    if (!in->terminal) {
        len = whole_line(in);
        *line = in->line;
        return len;
    }
    take_interrupts();
    sigaction(SIGINT, &on, &before);
    for (bool again = false;; again = true) {
        len = whole_line(in);
        if (len >= 0 || !take_interrupts() || again) break;
        clearerr(stdin);
        printf("\n(Ctrl-D, /quit or Ctrl-C again leaves)\n");
    }
    sigaction(SIGINT, &before, NULL);
    if (len >= 0) remember(in);
    *line = in->line;
    return len;
}
