/* chat.c - `radish chat`: a conversation in the terminal.
 *
 * The history is sent whole, as ids, with every turn; the radix cache makes that cheap, and /stats
 * shows how much of it was found there. */
#include "cli/history.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void print_stats(const ask_answer *a)
{
    if (!a->prompt_tokens) {
        printf("nothing was asked yet\n");
        return;
    }
    double decode_s = a->total_s - a->first_token_s;
    printf("last turn: %u prompt tokens, %u of them cached; first text after %.0f ms; "
           "%u tokens out",
           a->prompt_tokens, a->cached_tokens, a->first_token_s * 1000, a->completion_tokens);
    if (decode_s > 0.002)
        printf(", %.1f tokens/s", (a->completion_tokens - 1) / decode_s);
    else if (a->total_s > 0)
        printf(", %.1f tokens/s", a->completion_tokens / a->total_s);
    printf("\n");
}

static void print_commands(void)
{
    printf("/reset  forget the conversation\n"
           "/stats  cached tokens and speed of the last turn\n"
           "/help   this\n"
           "/quit   leave; so does Ctrl-D\n"
           "Ctrl-C ends an answer; at the prompt it clears the line, twice in a row it leaves\n");
}

/* The figures of the last turn, without its text. */
static void keep_figures(ask_answer *last, const ask_answer *answer)
{
    *last = *answer;
    last->text = NULL;
    last->ids = NULL;
}

/* Nothing more can be said in this conversation, and the user should know what helps. */
static void say_full(const engine *e)
{
    cli_fail("the conversation no longer fits the context of %u tokens; /reset begins a new one",
             engine_get_info(e)->context_length);
}

/* Says that the question is too long, together with what was said before or by itself; in
 * the latter case a reset would not help. */
static bool fits(const engine *e, const history *h, bool first)
{
    uint32_t context = engine_get_info(e)->context_length;
    if (h->ids.len <= context) return true;
    if (first)
        cli_fail("the prompt has %u tokens, the context is %u tokens long", h->ids.len, context);
    else
        say_full(e);
    return false;
}

/* Asks with what the conversation holds; a turn that fails is taken back. */
static void take_turn(engine *e, history *h, const sampling_options *sampling, const char *text,
                      size_t len, ask_answer *last)
{
    uint32_t before = h->ids.len;
    ask_answer answer = {0};
    rad_error err = {0};
    if (history_question(h, text, len, &err) != RAD_OK) {
        cli_fail("%s", err.text);
        return;
    }
    if (!fits(e, h, before == 0)) {
        history_cut(h, before);
        return;
    }
    engine_request request = {.ids = h->ids.ids, .num_ids = h->ids.len};
    sampling_options_apply(sampling, &request);
    rad_status status = ask_engine(e, &request, stdout, &answer, &err);
    if (status == RAD_OK) {
        printf("%s\n", answer.finish == ENGINE_FINISH_ABORT ? " [stopped]" : "");
        fflush(stdout);
        keep_figures(last, &answer);
        if (answer.prompt_tokens + answer.completion_tokens >= engine_get_info(e)->context_length)
            say_full(e);
        status = history_answer(h, &answer, &err);
    }
    if (status != RAD_OK) {
        history_cut(h, before);
        cli_fail("%s", err.text);
    }
    ask_answer_fini(&answer);
}

/* Ctrl-C at the prompt (ask.c has its own). A counter and not a flag: one that comes before
 * the wait for input has begun must end this wait too, and any thread may get the signal. */
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

/* False: Ctrl-C came first. stdin has no buffer here, so what poll sees is all there is. */
static bool wait_for_input(void)
{
    struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                           {.fd = interrupts, .events = POLLIN}};
    while (poll(fds, 2, -1) < 0 && errno == EINTR)
        ;
    return !take_interrupts();
}

/* The next line, its end cut off; -1 at the end of the input. On a terminal Ctrl-C throws
 * away what was typed and asks again; a second one in a row is the end too. */
static ssize_t read_line(char **line, size_t *cap, bool terminal)
{
    /* Without SA_RESTART, so that a read of half a line ends. */
    struct sigaction on = {.sa_handler = on_interrupt}, before;
    ssize_t len = -1;
    if (terminal) {
        take_interrupts();
        sigaction(SIGINT, &on, &before);
    }
    for (bool again = false;; again = true) {
        if (terminal) printf("> ");
        fflush(stdout);
        if (!terminal || wait_for_input()) {
            len = getline(line, cap, stdin);
            if (len >= 0 || !terminal || !take_interrupts()) break;
        }
        if (again) break;
        clearerr(stdin);
        printf("\n(Ctrl-D, /quit or Ctrl-C again leaves)\n");
    }
    if (terminal) sigaction(SIGINT, &before, NULL);
    while (len > 0 && ((*line)[len - 1] == '\n' || (*line)[len - 1] == '\r'))
        (*line)[--len] = 0;
    return len;
}

static void talk(engine *e, history *h, const sampling_options *sampling)
{
    bool terminal = isatty(STDIN_FILENO);
    ask_answer last = {0};
    char *line = NULL;
    size_t cap = 0;
    if (terminal) {
        interrupts = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        setvbuf(stdin, NULL, _IONBF, 0);
    }
    for (ssize_t len; (len = read_line(&line, &cap, terminal)) >= 0;) {
        if (!len) continue;
        if (!strcmp(line, "/quit") || !strcmp(line, "/exit")) break;
        if (!strcmp(line, "/help"))
            print_commands();
        else if (!strcmp(line, "/stats"))
            print_stats(&last);
        else if (!strcmp(line, "/reset")) {
            history_cut(h, 0);
            printf("the conversation is forgotten\n");
        } else if (line[0] == '/')
            printf("there is no command '%s'; /help lists them\n", line);
        else
            take_turn(e, h, sampling, line, (size_t)len, &last);
    }
    if (terminal) printf("\n");
    if (interrupts >= 0) close(interrupts);
    free(line);
}

int cmd_chat(int argc, char **argv)
{
    model_options model = {0};
    sampling_options sampling = {.params = {.top_p = 1}, .max_new_tokens = -1};
    const char *system = NULL, *template = NULL, *positional = NULL;
    uint32_t context_length = 0;
    const cli_manual manual = {
        .command = "chat",
        .usage = "chat MODEL [options]",
        .about =
            "A conversation, one line a message. What was said stays in the KV cache, so a turn\n"
            "costs its new tokens only. /reset, /stats, /help and /quit are commands.\n"
            "Ctrl-C ends an answer, Ctrl-D the conversation. Without a terminal, messages are\n"
            "read from stdin.",
    };
    const cli_option options[] = {
        {.kind = CLI_HEADING, .help = "Conversation:"},
        {.kind = CLI_TEXT,
         .letter = 's',
         .name = "system",
         .arg = "TEXT",
         .target = &system,
         .help = "A system message in front."},
        {.kind = CLI_TEXT,
         .name = "chat-template",
         .arg = "NAME",
         .target = &template,
         .help = "chatml, llama-3, radish, the name of one of the model file's templates (radish\n"
                 "info lists them), or a Jinja file; default: the model file's own."},
        SAMPLING_OPTIONS(&sampling, "-1"),
        MODEL_OPTIONS(&model),
        DEVICE_OPTION(&model),
        {.kind = CLI_U32,
         .name = "context-length",
         .arg = "N",
         .target = &context_length,
         .help = "Room for the conversation. Default: the model's, at most 32768;\n"
                 "0 = default."},
    };
    int code = cli_parse(&manual, options, RAD_COUNT(options), argc, argv, &positional);
    if (code == CLI_GO_ON) code = model_options_check("chat", &model, positional);
    if (code != CLI_GO_ON) return code;

    rad_env env = cli_env(&model);
    history h = {0};
    engine *e = cli_engine_for_one(&env, &model, context_length, 0, template, 2);
    if (!e) return 1;
    code = 1;
    if (!engine_get_info(e)->chat_template[0]) {
        cli_fail("'%s' has no chat template; name one with --chat-template, or use "
                 "radish generate",
                 model.model);
    } else {
        history_init(&h, e, system);
        if (isatty(STDIN_FILENO))
            printf("%s, context %u tokens. /help lists the commands, Ctrl-D leaves.\n",
                   engine_get_info(e)->model_name, engine_get_info(e)->context_length);
        talk(e, &h, &sampling);
        code = 0;
    }
    history_fini(&h);
    engine_destroy(e);
    return code;
}
