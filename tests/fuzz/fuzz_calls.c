/* fuzz_calls.c - any text as what a model says, in any format: cut into pieces or not it is the
 * same, no byte is said twice, and the arguments of calls that end are JSON objects.
 *
 * The first byte picks the format, the second the reasoning and the mode, the third the pieces. */
#include "text/detokenize.h"
#include "text/json_scan.h"
#include "text/tool_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct heard {
    text_buf said; /* kinds and texts */
    text_buf args; /* of the call that goes on */
    int kind;
    bool in_call;
    size_t bytes; /* of contents and reasoning */
} heard;

static tool_types *types;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    json_t *tools =
        json_loads("[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":"
                   "{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"z\":{\"type\":["
                   "\"string\",\"null\"]}}}}}]",
                   0, NULL);
    if (!tools || tool_types_create(tools, &types) != RAD_OK) abort();
    json_decref(tools);
    return 0;
}

static void put(text_buf *b, const char *text, size_t len)
{
    if (text_buf_append(b, text, len) != RAD_OK) abort();
}

static bool hear(void *user, const said *what)
{
    heard *h = user;
    const char kind[2] = {(char)('A' + what->kind), (char)('0' + what->broken)};
    bool call = what->kind == SAID_ARGUMENTS || what->kind == SAID_CALL_END;
    if (call != h->in_call || (what->kind == SAID_CALL_END ? 0 : !what->len)) abort();
    if ((int)what->kind != h->kind) put(&h->said, kind, 2);
    put(&h->said, what->text ? what->text : "", what->len);
    h->kind = (int)what->kind;
    if (what->kind == SAID_CONTENT || what->kind == SAID_REASONING) h->bytes += what->len;
    if (what->kind == SAID_CALL) {
        h->in_call = true;
        h->args.len = 0;
    }
    if (what->kind == SAID_ARGUMENTS) put(&h->args, what->text, what->len);
    if (what->kind != SAID_CALL_END) return true;
    h->in_call = false;
    h->kind = -1;
    if (!what->broken && (!h->args.len || h->args.data[0] != '{' ||
                          json_scan_value(h->args.data, h->args.len) != (ptrdiff_t)h->args.len))
        abort();
    return true;
}

static void run(const tool_parser_params *params, const char *text, size_t len, size_t piece,
                heard *h)
{
    tool_parser *p;
    *h = (heard){.kind = -1};
    if (tool_parser_create(params, &p) != RAD_OK) abort();
    for (size_t at = 0; at < len; at += piece) {
        size_t n = len - at < piece ? len - at : piece;
        if (tool_parser_feed(p, text + at, n, hear, h) != RAD_OK) abort();
        if (!params->whole_calls && tool_parser_bytes(p) > 8 * TOOL_CALL_MOST_HELD + 4 * piece)
            abort();
    }
    if (tool_parser_finish(p, hear, h) != RAD_OK || h->in_call) abort();
    tool_parser_destroy(p);
    /* Two messages of harmony have an empty line between them. */
    if (h->bytes > len * 2) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const calls[] = {
        "qwen",        "qwen3_coder", "glm45",         "llama3",          "pythonic",
        "lfm2",        "mistral",     "granite",       "deepseekv3",      "kimi_k2",
        "functionary", "gemma4",      "functiongemma", "gpt-oss",         NULL,
        "deepseekv32", "minimax-m2",  "hunyuan",       "cohere_command4", "command_r",
        "apertus2509", "nemotron_v2", "seed_oss",      "gigachat3"};
    static const char *const reasons[] = {NULL,      "qwen3",   "deepseek-r1",
                                          "mistral", "gpt-oss", "gemma4"};
    enum { CALLS = sizeof calls / sizeof *calls, REASONS = sizeof reasons / sizeof *reasons };
    if (size < 3 || size > 60000) return 0;
    const char *reason = reasons[data[1] / 8 % REASONS];
    const tool_parser_params params = {
        .calls = calls[data[0] % CALLS] ? tool_format_find(calls[data[0] % CALLS]) : NULL,
        .reasoning = reason ? reasoning_format_find(reason) : NULL,
        .types = data[1] & 1 ? types : NULL,
        .whole_calls = data[1] & 2,
        .one_call = data[1] & 4};
    heard one, cut;
    const char *text = (const char *)data + 3;
    run(&params, text, size - 3, size, &one);
    run(&params, text, size - 3, 1 + data[2] % 16, &cut);
    if (one.said.len != cut.said.len ||
        (one.said.len && memcmp(one.said.data, cut.said.data, one.said.len) != 0))
        abort();
    text_buf_fini(&one.said);
    text_buf_fini(&one.args);
    text_buf_fini(&cut.said);
    text_buf_fini(&cut.args);
    return 0;
}
