/* chat.c - `radish chat`: a conversation in the terminal.
 *
 * The history is sent whole, as ids, with every turn; the radix cache makes that cheap, and the
 * line behind each answer shows how much of it was found there. */
#include "cli/chat_file.h"
#include "cli/line_input.h"
#include "cli/terminal_text.h"

#include <stdlib.h>
#include <unistd.h>

/* A conversation, and how it is asked. */
typedef struct chat {
    engine *engine;
    chat_history history;
    sampling_options sampling;
    ask_answer last; /* the figures of the last turn, without its text */
    line_input *input;
    bool terminal, figures, colour;
} chat;

static double tokens_per_s(const ask_answer *a)
{
    const double decode_s = a->total_s - a->first_token_s;
    if (decode_s > 0.002 && a->completion_tokens > 1) return (a->completion_tokens - 1) / decode_s;
    return a->total_s > 0 ? a->completion_tokens / a->total_s : 0;
}

static void print_stats(const ask_answer *a)
{
    if (!a->prompt_tokens) {
        printf("nothing was asked yet\n");
        return;
    }
    printf("last turn: %u prompt tokens, %u of them cached; first text after %.0f ms; "
           "%u tokens out",
           a->prompt_tokens, a->cached_tokens, a->first_token_s * 1000, a->completion_tokens);
    if (tokens_per_s(a) > 0) printf(", %.1f tokens/s", tokens_per_s(a));
    printf("\n");
}

/* Nothing more can be said in this conversation, and the user should know what helps. */
static void say_full(const engine *e)
{
    cli_fail("the conversation no longer fits the context of %u tokens; /reset begins a new one",
             engine_get_info(e)->context_length);
}

/* Says that the question is too long, together with what was said before or by itself; in
 * the latter case a reset would not help. */
static bool fits(const engine *e, const chat_history *h, bool first)
{
    uint32_t context = engine_get_info(e)->context_length;
    if (h->ids.len <= context) return true;
    if (first)
        cli_fail("the prompt has %u tokens, the context is %u tokens long", h->ids.len, context);
    else
        say_full(e);
    return false;
}

/* Behind an answer, as quietly as the terminal can. */
static void print_figures(const chat *c, const ask_answer *a)
{
    if (!c->figures) return;
    printf("%s[%u prompt tokens, %u cached; first text after %.0f ms; %u tokens out, %.1f/s]%s\n",
           c->colour ? "\033[2m" : "", a->prompt_tokens, a->cached_tokens, a->first_token_s * 1000,
           a->completion_tokens, tokens_per_s(a), c->colour ? "\033[0m" : "");
}

/* Asks with what the conversation holds; a turn that fails is taken back. */
static void take_turn(chat *c, const char *text, size_t len)
{
    chat_history *h = &c->history;
    engine *e = c->engine;
    uint32_t before = h->ids.len;
    ask_answer answer = {0};
    rad_error err = {0};
    if (chat_history_question(h, text, len, &err) != RAD_OK) {
        cli_fail("%s", err.text);
        return;
    }
    if (!fits(e, h, h->num_messages == 1)) {
        chat_history_cut(h, before);
        return;
    }
    engine_request request = {.ids = h->ids.ids, .num_ids = h->ids.len};
    sampling_options_apply(&c->sampling, &request);
    rad_status status = ask_engine(e, &request, stdout, &answer, &err);
    if (status == RAD_OK) {
        printf("%s\n", answer.finish == ENGINE_FINISH_ABORT ? " [stopped]" : "");
        print_figures(c, &answer);
        fflush(stdout);
        c->last = answer;
        c->last.text = NULL;
        c->last.ids = NULL;
        if (answer.prompt_tokens + answer.completion_tokens >= engine_get_info(e)->context_length)
            say_full(e);
        status = chat_history_answer(h, &answer, &err);
    }
    if (status != RAD_OK) {
        chat_history_cut(h, before);
        cli_fail("%s", err.text);
    }
    ask_answer_fini(&answer);
}

/* ---- commands ---- */

static void do_reset(chat *c, const char *arg)
{
    (void)arg;
    chat_history_reset(&c->history);
    printf("the conversation is forgotten\n");
}

static void do_stats(chat *c, const char *arg)
{
    (void)arg;
    print_stats(&c->last);
}

static void do_system(chat *c, const char *arg)
{
    rad_error err = {0};
    const char *system = c->history.system;
    if (!*arg) {
        if (!system || !*system) system = "there is no system message; /system TEXT sets one";
        terminal_text_write(stdout, system, strlen(system)); /* a file's, after /load */
        printf("\n");
        return;
    }
    if (chat_history_set_system(&c->history, strcmp(arg, "-") ? arg : NULL, &err) != RAD_OK)
        cli_fail("%s", err.text);
    else
        printf("%s\n", strcmp(arg, "-") ? "the system message is another one from now on"
                                        : "there is no system message from now on");
}

static void do_retry(chat *c, const char *arg)
{
    char *text;
    size_t len;
    (void)arg;
    chat_history_take_back(&c->history, &text, &len);
    if (!text) {
        printf("nothing was asked yet\n");
        return;
    }
    c->sampling.params.seed++; /* another answer, where there is a temperature */
    take_turn(c, text, len);
    free(text);
}

static void do_save(chat *c, const char *arg)
{
    rad_error err = {0};
    if (!*arg)
        printf("/save FILE\n");
    else if (chat_file_save(&c->history, arg, &err) != RAD_OK)
        cli_fail("%s", err.text);
    else
        printf("%u messages are in %s\n", c->history.num_messages, arg);
}

static void do_load(chat *c, const char *arg)
{
    rad_error err = {0};
    if (!*arg)
        printf("/load FILE\n");
    else if (chat_file_load(&c->history, arg, &err) != RAD_OK)
        cli_fail("%s", err.text);
    else
        printf("%u messages, the next question goes on from them\n", c->history.num_messages);
}

static void do_help(chat *c, const char *arg);

static const struct command {
    const char *name, *arg, *about;
    void (*run)(chat *c, const char *arg); /* NULL: leaves */
} commands[] = {
    {"/system", "TEXT", "another system message in front; /system - has none", do_system},
    {"/retry", "", "take the last answer back and ask again", do_retry},
    {"/save", "FILE", "write the conversation, as the messages of a chat request", do_save},
    {"/load", "FILE", "go on from what a file says", do_load},
    {"/reset", "", "forget the conversation", do_reset},
    {"/stats", "", "cached tokens and speed of the last turn", do_stats},
    {"/help", "", "this", do_help},
    {"/quit", "", "leave; so does Ctrl-D", NULL},
    {"/exit", "", "the same", NULL},
};

static void do_help(chat *c, const char *arg)
{
    (void)arg;
    for (size_t i = 0; i < RAD_COUNT(commands); i++) {
        char left[32];
        snprintf(left, sizeof left, "%s %s", commands[i].name, commands[i].arg);
        printf("%-13s %s\n", left, commands[i].about);
    }
    printf("A line that ends with \\ goes on in the next.\n"
           "Ctrl-C ends an answer; at the prompt it clears the line, twice in a row it leaves\n");
    if (c->terminal && line_input_can_edit())
        printf(
            "Arrow keys go through earlier lines, Ctrl-R looks for one, Tab completes commands\n");
}

/* A line that begins with a slash. False: it was the last. */
static bool run_command(chat *c, char *line)
{
    char *arg = line + strcspn(line, " \t");
    const size_t len = (size_t)(arg - line);
    arg += strspn(arg, " \t");
    for (size_t i = 0; i < RAD_COUNT(commands); i++) {
        if (strlen(commands[i].name) != len || memcmp(commands[i].name, line, len)) continue;
        if (*arg && !*commands[i].arg) {
            printf("%s takes nothing behind it\n", commands[i].name);
            return true;
        }
        if (!commands[i].run) return false;
        commands[i].run(c, arg);
        return true;
    }
    printf("there is no command '%.*s'; /help lists them\n", (int)len, line);
    return true;
}

static void talk(chat *c)
{
    char *line;
    for (ssize_t len; (len = line_input_read(c->input, &line)) >= 0;) {
        if (!len) continue;
        if (line[0] != '/')
            take_turn(c, line, (size_t)len);
        else if (!run_command(c, line))
            break;
    }
    if (c->terminal) printf("\n");
}

/* Tab completes them, up to a NULL. */
static const char *const *command_names(void)
{
    static const char *names[RAD_COUNT(commands) + 1];
    for (size_t i = 0; i < RAD_COUNT(commands); i++)
        names[i] = commands[i].name;
    return names;
}

/* From the first line to the last. The exit code. */
static int converse(chat *c, const char *system, const char *load, bool remember)
{
    char path[4096];
    rad_error err = {0};
    const engine_info *info = engine_get_info(c->engine);
    const bool has_path = remember && line_input_history_path("chat_history", path, sizeof path);
    chat_history_init(&c->history, c->engine);
    rad_status status = RAD_OK;
    if (load) status = chat_file_load(&c->history, load, &err);
    if (status == RAD_OK && system) status = chat_history_set_system(&c->history, system, &err);
    if (status == RAD_OK) {
        c->input = line_input_open("> ", has_path ? path : NULL, command_names());
        if (!c->input) status = rad_fail(&err, RAD_E_NOMEM, "no memory for a line");
    }
    if (status == RAD_OK) {
        if (c->terminal)
            printf("%s, context %u tokens. /help lists the commands, Ctrl-D leaves.\n",
                   info->model_name, info->context_length);
        talk(c);
    }
    line_input_close(c->input);
    chat_history_fini(&c->history);
    return status == RAD_OK ? 0 : cli_fail("%s", err.text);
}

int cmd_chat(int argc, char **argv)
{
    model_options model = {0};
    chat c = {.sampling = {.params = {.top_p = 1}, .max_new_tokens = -1},
              .terminal = isatty(STDIN_FILENO),
              .figures = isatty(STDOUT_FILENO)};
    const char *system = NULL, *template = NULL, *positional = NULL, *load = NULL;
    uint32_t context_length = 0;
    bool no_history = false, no_figures = false;
    const cli_manual manual = {
        .command = "chat",
        .usage = "chat MODEL [options]",
        .about =
            "A conversation, one line a message. What was said stays in the KV cache, so a turn\n"
            "costs its new tokens only; on a terminal a line behind each answer tells. Commands:\n"
            "/system, /retry, /save, /load, /reset, /stats, /help, /quit. A line that ends with a\n"
            "backslash goes on in the next. Ctrl-C ends an answer, Ctrl-D the conversation.\n"
            "Without a terminal, messages are read from stdin.",
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
         .name = "load",
         .arg = "FILE",
         .target = &load,
         .help = "Go on from a conversation that /save wrote, or from the messages of a request."},
        {.kind = CLI_FLAG,
         .name = "no-history",
         .target = &no_history,
         .help =
             "Remember no lines. Default: the last 1000 that were typed are kept in\n"
             "$XDG_STATE_HOME/radish/chat_history (~/.local/state), where lines can be edited."},
        {.kind = CLI_FLAG,
         .name = "no-figures",
         .target = &no_figures,
         .help = "No line of cached tokens and speed behind an answer."},
        {.kind = CLI_TEXT,
         .name = "chat-template",
         .arg = "NAME",
         .target = &template,
         .help = "chatml, llama-3, radish, the name of one of the model file's templates (radish\n"
                 "info lists them), or a Jinja file; default: the model file's own."},
        SAMPLING_OPTIONS(&c.sampling, "-1"),
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

    line_input_prepare();
    rad_env env = cli_env(&model);
    engine *e = cli_engine_for_one(&env, &model, context_length, 0, template, 2);
    if (!e) return 1;
    if (!engine_get_info(e)->chat_template[0]) {
        cli_fail("'%s' has no chat template; name one with --chat-template, or use "
                 "radish generate",
                 model.model);
        engine_destroy(e);
        return 1;
    }
    c.engine = e;
    c.figures &= !no_figures;
    c.colour = c.figures && !getenv("NO_COLOR");
    code = converse(&c, system, load, !no_history);
    engine_destroy(e);
    return code;
}
