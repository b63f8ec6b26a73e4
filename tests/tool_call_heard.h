/* tool_call_heard.h - for test_tool_call: what a parser says of a text, as one line.
 *
 * "r:so|c:Hi|f{"x": 1}|" is reasoning, content, and a call of f; "!|" ends one that broke off. */
#ifndef TESTS_TOOL_CALL_HEARD_H
#define TESTS_TOOL_CALL_HEARD_H

#include "test.h"

#include "base/base.h"
#include "text/detokenize.h"
#include "text/tool_call.h"

#include <jansson.h>

typedef struct heard {
    text_buf text;
    int kind;
    bool failed;
    long left; /* calls of `say` until it fails; -1: never */
} heard;

static void put(text_buf *b, const char *text, size_t len)
{
    CHECK_OK(text_buf_append(b, text, len));
}

static bool hear(void *user, const said *what)
{
    heard *h = user;
    if (h->left == 0) return false;
    if (h->left > 0) h->left--;
    if (what->kind == SAID_CALL_END) {
        put(&h->text, what->broken ? "!|" : "|", what->broken ? 2 : 1);
        h->kind = -1;
        return true;
    }
    CHECK(what->len > 0);
    if ((int)what->kind != h->kind && what->kind != SAID_ARGUMENTS) {
        if (h->kind == SAID_CONTENT || h->kind == SAID_REASONING) put(&h->text, "|", 1);
        if (what->kind == SAID_CONTENT) put(&h->text, "c:", 2);
        if (what->kind == SAID_REASONING) put(&h->text, "r:", 2);
    }
    put(&h->text, what->text, what->len);
    if (what->kind == SAID_CALL && what->id_len) {
        put(&h->text, "#", 1);
        put(&h->text, what->id, what->id_len);
    }
    h->kind = (int)what->kind;
    return true;
}

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{"
    "\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"x\":{\"type\":\"number\"},"
    "\"b\":{\"type\":\"boolean\"},\"l\":{\"type\":\"array\"},\"o\":{\"type\":\"object\"},"
    "\"z\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_x\",\"parameters\":{\"properties\":{"
    "\"s\":{\"enum\":[\"a\"]},\"n\":{\"type\":\"integer\"}}}}}]";

static tool_types *types(void)
{
    json_t *tools = json_loads(tools_text, 0, NULL);
    tool_types *t = NULL;
    CHECK(tools != NULL);
    CHECK_OK(tool_types_create(tools, &t));
    json_decref(tools);
    return t;
}

/* Pieces of `piece` bytes, or random ones (0). The caller frees. */
static char *parse(const tool_parser_params *params, const char *tail, const char *text, size_t len,
                   size_t piece, uint64_t *rng)
{
    heard h = {.kind = -1, .left = -1};
    tool_parser *p;
    CHECK_OK(tool_parser_create(params, &p));
    if (tail) tool_parser_begin(p, tail, strlen(tail));
    for (size_t at = 0, n; at < len; at += n) {
        n = piece ? piece : 1 + test_random(rng) % 12;
        n = RAD_MIN(n, len - at);
        char *guarded = malloc(n); /* so that a byte too many is seen */
        memcpy(guarded, text + at, n);
        CHECK_OK(tool_parser_feed(p, guarded, n, hear, &h));
        free(guarded);
        CHECK(tool_parser_bytes(p) < 400000 + 4 * len);
    }
    CHECK_OK(tool_parser_finish(p, hear, &h));
    tool_parser_destroy(p);
    put(&h.text, "", 1);
    return h.text.data;
}

/* One text with a format, streamed and whole: the same in each. */
static void expect(const char *calls, const char *reasoning, const char *tail, const char *text,
                   const char *streamed, const char *whole)
{
    tool_types *t = types();
    tool_parser_params params = {.calls = calls ? tool_format_find(calls) : NULL,
                                 .reasoning = reasoning ? reasoning_format_find(reasoning) : NULL,
                                 .types = t};
    CHECK(!calls || params.calls);
    CHECK(!reasoning || params.reasoning);
    for (int mode = 0; mode < 2; mode++) {
        params.whole_calls = mode;
        const char *want = mode && whole ? whole : streamed;
        for (size_t piece = 1; piece < strlen(text) + 2; piece++) {
            char *got = parse(&params, tail, text, strlen(text), piece, NULL);
            CHECKF(strcmp(got, want) == 0, "%s %s in %zus: '%s'\n gave '%s'\n want '%s'\n",
                   calls ? calls : "-", mode ? "whole" : "streamed", piece, text, got, want);
            free(got);
        }
    }
    tool_types_destroy(t);
}

#endif
