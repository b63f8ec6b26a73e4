/* render.c - `radish render`: what a chat template makes of a conversation, without a model. */
#define _GNU_SOURCE /* strptime, timegm */
#include "cli/cli.h"
#include "cli/terminal_text.h"
#include "text/chat_render.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct render_options {
    const char *template, *messages, *tools, *kwargs, *bos, *eos, *now, *lines;
    bool add_generation_prompt, json;
} render_options;

/* The file's JSON; NULL after saying why on stderr. */
static json_t *read_json(const char *path)
{
    size_t len;
    char *bytes = cli_read_file(path, &len);
    if (!bytes) return NULL;
    json_error_t where;
    json_t *json = json_loadb(bytes, len, JSON_ALLOW_NUL, &where);
    free(bytes);
    if (!json) cli_fail("'%s', line %d: %s", path, where.line, where.text);
    return json;
}

/* 2025-01-15 or 2025-01-15T12:30:00 as seconds; false: something else. */
static bool parse_now(const char *text, int64_t *seconds)
{
    struct tm tm = {0};
    const char *end = strptime(text, "%Y-%m-%d", &tm);
    if (end && (*end == 'T' || *end == ' ')) end = strptime(end + 1, "%H:%M:%S", &tm);
    if (!end || *end) return false;
    *seconds = timegm(&tm);
    return true;
}

static int print_error(const render_options *o, const jinja_fault *fault, const rad_error *err)
{
    if (!o->json) return cli_fail("%s", err->text);
    printf("{\"error\": {\"message\": ");
    cli_print_json_text(err->text, strlen(err->text));
    printf(", \"type\": \"%s\", \"line\": %u}}\n",
           fault->raised                      ? "raise_exception"
           : err->status == RAD_E_FORMAT      ? "syntax_error"
           : err->status == RAD_E_UNSUPPORTED ? "unsupported"
           : err->status == RAD_E_LIMIT       ? "limit"
                                              : "render_error",
           fault->line);
    return 1;
}

static void print_text(const render_options *o, const jinja_text *text)
{
    if (!o->json) {
        terminal_text_write(stdout, text->data, text->len);
        return;
    }
    printf("{\"text\": ");
    cli_print_json_text(text->data, text->len);
    printf("}\n");
}

static int render(const render_options *o, const char *source, size_t len, const chat_input *input)
{
    rad_error err = {0};
    jinja_fault fault = {0};
    jinja_template *t = NULL;
    jinja_text text = {0};
    int code = 0;
    if (jinja_parse(NULL, source, len, &t, &fault, &err) != RAD_OK ||
        chat_render(t, input, &text, &fault, &err) != RAD_OK)
        code = print_error(o, &fault, &err);
    else
        print_text(o, &text);
    jinja_text_fini(&text);
    jinja_destroy(t);
    return code;
}

/* --template with --messages and --tools. */
static int render_files(const render_options *o, chat_input *input)
{
    size_t len;
    int code = 1;
    char *source = NULL;
    json_t *messages = read_json(o->messages), *tools = o->tools ? read_json(o->tools) : NULL;
    input->messages = messages;
    input->tools = tools;
    bool read = messages && (tools || !o->tools);
    if (read && !json_is_array(messages))
        cli_fail("'%s' is not a list of messages", o->messages);
    else if (read && (source = cli_read_file(o->template, &len)))
        code = render(o, source, len, input);
    free(source);
    json_decref(messages);
    json_decref(tools);
    return code;
}

/* One conversation a line, one answer a line; what fails does not end the run. */
static int render_lines(const render_options *o, const chat_input *common)
{
    size_t len;
    char *bytes = cli_read_file(o->lines, &len);
    if (!bytes) return 1;
    int code = 0;
    for (size_t at = 0, number = 1; at < len && !code; number++) {
        const char *end = memchr(bytes + at, '\n', len - at);
        size_t line = end ? (size_t)(end - bytes) - at : len - at;
        json_t *json = json_loadb(bytes + at, line, JSON_ALLOW_NUL, NULL);
        const json_t *template = json_object_get(json, "template");
        chat_input input = *common;
        input.messages = json_object_get(json, "messages");
        input.tools = json_object_get(json, "tools");
        input.kwargs = json_object_get(json, "kwargs");
        input.add_generation_prompt = json_is_true(json_object_get(json, "add_generation_prompt"));
        if (json_is_string(template) && json_is_array(input.messages))
            render(o, json_string_value(template), json_string_length(template), &input);
        else
            code =
                cli_fail("'%s', line %zu: no object with template and messages", o->lines, number);
        json_decref(json);
        at += line + 1;
    }
    free(bytes);
    return code;
}

int cmd_render(int argc, char **argv)
{
    render_options o = {0};
    const cli_manual manual = {
        .command = "render",
        .usage = "render --template FILE.jinja --messages FILE.json [options]",
        .about =
            "Prints what a chat template makes of a conversation, as the server would send it\n"
            "to the model. Templates are Jinja2 as Hugging Face runs it; what is not known\n"
            "here is an error that names it and its line.",
        .after = "Example:\n"
                 "  radish render --template chat.jinja --messages talk.json "
                 "--add-generation-prompt",
    };
    const cli_option options[] = {
        {.kind = CLI_HEADING, .help = "The conversation:"},
        {.kind = CLI_TEXT,
         .name = "template",
         .arg = "FILE",
         .target = &o.template,
         .help = "The Jinja template; - is stdin."},
        {.kind = CLI_TEXT,
         .name = "messages",
         .arg = "FILE",
         .target = &o.messages,
         .help = "JSON: a list of {\"role\", \"content\", ...}."},
        {.kind = CLI_TEXT,
         .name = "tools",
         .arg = "FILE",
         .target = &o.tools,
         .help = "JSON: a list of tools, as in a request. Default: none."},
        {.kind = CLI_FLAG,
         .name = "add-generation-prompt",
         .target = &o.add_generation_prompt,
         .help = "End with what begins the assistant's answer."},
        {.kind = CLI_TEXT,
         .name = "kwargs",
         .arg = "JSON",
         .target = &o.kwargs,
         .help = "An object of further variables, such as {\"enable_thinking\": false}."},
        {.kind = CLI_TEXT,
         .name = "lines",
         .arg = "FILE",
         .target = &o.lines,
         .help =
             "Instead of all these: a line for each conversation, {\"template\": \"...\",\n"
             "\"messages\", \"tools\", \"kwargs\", \"add_generation_prompt\"}. The answers are\n"
             "lines as with --json."},
        {.kind = CLI_HEADING, .help = "Surroundings:"},
        {.kind = CLI_TEXT,
         .name = "bos-token",
         .arg = "TEXT",
         .target = &o.bos,
         .help = "What bos_token is. Default: nothing."},
        {.kind = CLI_TEXT,
         .name = "eos-token",
         .arg = "TEXT",
         .target = &o.eos,
         .help = "What eos_token is. Default: nothing."},
        {.kind = CLI_TEXT,
         .name = "now",
         .arg = "DATE",
         .target = &o.now,
         .help = "What strftime_now takes for now: 2025-01-15 or 2025-01-15T12:30:00.\n"
                 "Default: the clock."},
        {.kind = CLI_FLAG,
         .name = "json",
         .target = &o.json,
         .help =
             "Print {\"text\": ...}, or {\"error\": {\"message\", \"type\", \"line\"}} and exit\n"
             "with 1."},
    };
    int code = cli_parse(&manual, options, RAD_COUNT(options), argc, argv, NULL);
    if (code != CLI_GO_ON) return code;
    if (o.lines ? o.template || o.messages || o.tools || o.kwargs : !o.template || !o.messages)
        return cli_usage("render", "give --template and --messages, or --lines");
    o.json = o.json || o.lines;
    chat_input input = {.bos_token = o.bos,
                        .eos_token = o.eos,
                        .now_unix = chat_render_now(),
                        .add_generation_prompt = o.add_generation_prompt,
                        .trust_kwargs = true};
    if (o.now && !parse_now(o.now, &input.now_unix))
        return cli_usage("render", "--now is 2025-01-15 or 2025-01-15T12:30:00, not '%s'", o.now);
    json_t *kwargs = o.kwargs ? json_loads(o.kwargs, 0, NULL) : NULL;
    if (o.kwargs && !json_is_object(kwargs)) {
        json_decref(kwargs);
        return cli_usage("render", "--kwargs is a JSON object");
    }
    input.kwargs = kwargs;
    code = o.lines ? render_lines(&o, &input) : render_files(&o, &input);
    json_decref(kwargs);
    return code;
}
