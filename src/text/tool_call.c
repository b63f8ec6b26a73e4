/* tool_call.c - the parser around the formats: reasoning first, then text or calls.
 *
 * Text is said as far as it cannot be the beginning of a marker, and but for whitespace at its end,
 * which belongs to a call if one follows. A marker hands over to the format's step until that says
 * that the calls have ended, or that there was none: then one character of what was held is text,
 * and the rest is looked at anew.
 *
 * Invariant: in.start <= at <= in.buf.len; outside of a call at == in.start. */
#include "text/tool_call_impl.h"

#include "base/utf8.h"

#include <stdlib.h>

enum {
    MOST_SPACE = 1024,  /* whitespace that waits for what follows it */
    COMPACT = 16 << 10, /* bytes that were said before they are dropped */
    OPENED_BARE = 255
};

/* ---- words in text ---- */

match match_word(const char *text, size_t len, const char *word)
{
    size_t n = strlen(word);
    if (memcmp(text, word, RAD_MIN(n, len)) != 0) return MATCH_NO;
    return len < n ? MATCH_PART : MATCH_YES;
}

size_t find_words(const char *text, size_t len, const char *const *words, int *which)
{
    *which = -1;
    for (size_t i = 0; i < len; i++) {
        bool part = false;
        for (int w = 0; words[w]; w++) {
            if (text[i] != words[w][0]) continue;
            match m = match_word(text + i, len - i, words[w]);
            if (m == MATCH_YES) {
                *which = w;
                return i;
            }
            part = part || m == MATCH_PART;
        }
        if (part) return i;
    }
    return len;
}

match take_word(tool_parser *p, const char *word)
{
    match m = match_word(here(p), left(p), word);
    if (m == MATCH_YES) p->at += strlen(word);
    return m == MATCH_PART && p->at_end ? MATCH_NO : m;
}

bool is_name(const char *text, size_t len)
{
    if (!len || len > TOOL_CALL_MOST_NAME - 1) return false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80);
        if (!letter && !(c >= '0' && c <= '9') && !(c && strchr("_-.:/$@", c))) return false;
    }
    return true;
}

/* ---- saying ---- */

static void say(tool_parser *p, const said *what)
{
    if (!p->failed && !p->over && !p->say(p->user, what)) p->failed = true;
}

void say_text(tool_parser *p, said_kind kind, const char *text, size_t len)
{
    if (len) say(p, &(said){.kind = kind, .text = text, .len = len, .index = p->num_calls - 1});
}

void keep(tool_parser *p, text_buf *buf, const char *bytes, size_t len)
{
    if (text_buf_append(buf, bytes, len) != RAD_OK) p->failed = true;
}

static void say_begin(tool_parser *p, const char *name, size_t len, const char *id, size_t id_len)
{
    say(p, &(said){.kind = SAID_CALL,
                   .index = p->num_calls - 1,
                   .text = name,
                   .len = len,
                   .id = id_len ? id : NULL,
                   .id_len = id_len});
}

void call_begin(tool_parser *p, const char *name, size_t len, const char *id, size_t id_len)
{
    p->call_open = true;
    p->num_calls++;
    if (!p->params.whole_calls) {
        say_begin(p, name, len, id, id_len);
        return;
    }
    p->name.len = p->id.len = p->args.len = 0;
    keep(p, &p->name, name, len);
    keep(p, &p->id, id ? id : "", id ? id_len : 0);
}

void call_args(tool_parser *p, const char *json, size_t len)
{
    if (p->params.whole_calls)
        keep(p, &p->args, json, len);
    else
        say_text(p, SAID_ARGUMENTS, json, len);
}

void call_end(tool_parser *p)
{
    if (p->params.whole_calls && !p->failed) {
        say_begin(p, p->name.data, p->name.len, p->id.data, p->id.len);
        say_text(p, SAID_ARGUMENTS, p->args.data, p->args.len);
    }
    say(p, &(said){.kind = SAID_CALL_END, .index = p->num_calls - 1});
    p->call_open = false;
    p->said_text = true; /* what looks like a bare call behind it is the format's business */
    settle(p);
    if (p->params.one_call) p->over = true;
}

/* ---- text ---- */

/* How much of text[0..len) may be said when more comes: not the whitespace at its end. */
static size_t without_space(const char *text, size_t len)
{
    size_t n = len;
    while (n && is_space(text[n - 1]))
        n--;
    return len - n > MOST_SPACE ? len - MOST_SPACE : n;
}

static void say_content(tool_parser *p, size_t len)
{
    const char *text = p->in.buf.data + p->in.start;
    say_text(p, SAID_CONTENT, text, len);
    for (size_t i = 0; i < len && !p->said_text; i++)
        p->said_text = !is_space(text[i]);
    p->in.start += len;
    p->at = p->in.start;
}

static step begin_calls(tool_parser *p, uint8_t opened, size_t at)
{
    p->in_call = true;
    p->opened = opened;
    p->state = 0;
    p->retry_at = 0;
    p->at = at;
    return STEP_AGAIN;
}

static bool is_bare(const tool_format *f, char c)
{
    return ((f->flags & TOOL_BARE_JSON) && c == '{') || ((f->flags & TOOL_BARE_LIST) && c == '[');
}

static step step_text(tool_parser *p)
{
    const tool_format *f = p->format;
    p->at = p->in.start;
    if (p->trim && skip_space(p)) p->trim = false;
    if (p->trim) {
        p->in.start = p->at;
        return STEP_MORE;
    }
    p->in.start = p->at;
    if (f && !p->said_text && (f->flags & (TOOL_BARE_JSON | TOOL_BARE_LIST))) {
        size_t begin = p->in.start;
        if (skip_space(p) && is_bare(f, *here(p))) return begin_calls(p, OPENED_BARE, p->at);
        p->at = begin;
    }
    const char *text = here(p);
    int which = -1;
    size_t len = left(p), end = f ? find_words(text, len, f->opens, &which) : len;
    if (which < 0 && p->at_end) end = len;
    size_t space = f && (which >= 0 || !p->at_end) ? without_space(text, end) : end;
    say_content(p, space);
    if (which < 0) return STEP_MORE;
    /* The space in front is the format's if this is a call: so it waits, too. */
    return begin_calls(p, (uint8_t)which, p->at + (end - space) + strlen(f->opens[which]));
}

void call_break(tool_parser *p)
{
    if (p->call_open && !p->params.whole_calls) {
        say(p, &(said){.kind = SAID_CALL_END, .broken = true, .index = p->num_calls - 1});
        p->in.start = p->at;
    } else if (p->call_open) {
        p->num_calls--;
    }
    p->call_open = false;
    p->at = p->in.start;
}

/* It was no call, or one that broke off. What was said stays said. */
static void back_to_text(tool_parser *p)
{
    bool begun = p->call_open && !p->params.whole_calls;
    call_break(p);
    p->in_call = false;
    p->said_text = true;
    if (begun) return; /* what broke it may be the next call's marker */
    /* The first character of the marker is text, so that it is not found again. */
    const char *text = here(p);
    size_t len = left(p), n = 0;
    while (n < len && is_space(text[n]))
        n++;
    if (n < len) n += utf8_next((const unsigned char *)text + n, len - n).len;
    say_content(p, n);
}

static void run(tool_parser *p)
{
    while (!p->failed && !p->over) {
        step s = p->in_call ? p->format->step(p) : step_text(p);
        if (p->in_call && s == STEP_MORE && p->in.buf.len - p->in.start > TOOL_CALL_MOST_HELD &&
            !(p->call_open && p->params.whole_calls))
            s = STEP_TEXT;
        if (s == STEP_MORE && !(p->at_end && p->in_call)) break;
        if (s == STEP_MORE || s == STEP_TEXT) {
            back_to_text(p);
        } else if (s == STEP_DONE) {
            p->in_call = false;
            p->trim = true;
            p->in.start = p->at;
        }
    }
}

/* ---- reasoning ---- */

static void queue_drop(text_queue *q)
{
    if (!q->start || (q->start < COMPACT && q->start < q->buf.len)) return;
    memmove(q->buf.data, q->buf.data + q->start, q->buf.len - q->start);
    q->buf.len -= q->start;
    q->start = 0;
}

static void to_calls(tool_parser *p, const char *text, size_t len)
{
    size_t before = p->in.start;
    queue_drop(&p->in);
    size_t dropped = before - p->in.start;
    p->at -= dropped;
    p->retry_at -= RAD_MIN(dropped, p->retry_at);
    keep(p, &p->in.buf, text, len);
    if (!p->failed) run(p);
}

static void end_thinking(tool_parser *p)
{
    text_queue *q = &p->raw;
    p->thinking = THINK_OVER;
    to_calls(p, q->buf.data + q->start, q->buf.len - q->start);
    text_buf_fini(&q->buf);
    q->start = 0;
}

/* Whether a call's marker in reasoning, with `rest` behind it, is a call. */
static match is_call_marker(const tool_parser *p, const char *rest, size_t len)
{
    enum { MOST = 16 };
    size_t i = 0;
    if (p->format->flags & TOOL_ENDS_THINKING) return MATCH_YES;
    while (i < len && is_space(rest[i]) && i < MOST)
        i++;
    if (i == len) return p->at_end ? MATCH_NO : MATCH_PART;
    return rest[i] == '{' || rest[i] == '<' ? MATCH_YES : MATCH_NO;
}

static bool ends_thinking(const tool_parser *p)
{
    return p->format && p->format->flags & (TOOL_ENDS_THINKING | TOOL_ENDS_BEFORE);
}

static void think(tool_parser *p)
{
    text_queue *q = &p->raw;
    const char *words[5] = {p->params.reasoning->close};
    if (ends_thinking(p)) memcpy(words + 1, p->format->opens, sizeof p->format->opens);
    for (size_t from = 0;;) { /* markers before `from` are text */
        const char *text = q->buf.data + q->start;
        size_t len = q->buf.len - q->start;
        for (; p->trim_thought && len && is_space(*text); text++, len--)
            q->start++;
        if (len) p->trim_thought = false;
        int which;
        size_t end = from + find_words(text + from, len - from, words, &which);
        match m = MATCH_YES;
        if (which > 0) {
            size_t behind = end + strlen(words[which]);
            m = is_call_marker(p, text + behind, len - behind);
            if (m == MATCH_NO) {
                from = behind;
                continue;
            }
        }
        if (which < 0 && p->at_end) end = len;
        bool over = which >= 0 && m == MATCH_YES;
        size_t now = without_space(text, end);
        say_text(p, SAID_REASONING, text, now);
        q->start += over ? end : now;
        if (!over) return;
        if (which == 0) q->start += strlen(words[0]);
        p->trim = true;
        end_thinking(p);
        return;
    }
}

static void begin_thinking(tool_parser *p)
{
    text_queue *q = &p->raw;
    const char *text = q->buf.data + q->start;
    size_t len = q->buf.len - q->start, i = 0;
    while (i < len && is_space(text[i]))
        i++;
    match m = match_word(text + i, len - i, p->params.reasoning->open);
    if (i > MOST_SPACE) m = MATCH_NO;
    if (m == MATCH_PART && !p->at_end) return; /* whitespace alone is a part, too */
    if (m != MATCH_YES && p->thinking == THINK_START) {
        end_thinking(p);
        return;
    }
    if (m == MATCH_YES) q->start += i + strlen(p->params.reasoning->open);
    p->thinking = THINK_INSIDE;
    p->trim_thought = true;
    think(p);
}

static void think_on(tool_parser *p)
{
    if (p->thinking == THINK_INSIDE)
        think(p);
    else if (p->thinking != THINK_OVER)
        begin_thinking(p);
}

/* ---- the interface ---- */

rad_status tool_parser_create(const tool_parser_params *params, tool_parser **out)
{
    tool_parser *p = calloc(1, sizeof *p);
    *out = p;
    if (!p) return RAD_E_NOMEM;
    p->params = *params;
    p->format = params->calls;
    p->thinking = params->reasoning && params->reasoning->open ? THINK_START : THINK_OVER;
    if (p->thinking == THINK_START && params->reasoning->always) p->thinking = THINK_START_INSIDE;
    /* Channels are read also where nobody wants calls. */
    if (!p->format && params->reasoning && !params->reasoning->open)
        p->format = tool_format_find("gpt-oss");
    p->in_call = p->format && p->format->flags & TOOL_CHANNELS;
    return RAD_OK;
}

void tool_parser_destroy(tool_parser *p)
{
    if (!p) return;
    text_buf_fini(&p->raw.buf);
    text_buf_fini(&p->in.buf);
    text_buf_fini(&p->name);
    text_buf_fini(&p->id);
    text_buf_fini(&p->args);
    text_buf_fini(&p->scratch);
    free(p);
}

/* Where `word` stands last, or NULL. */
static const char *find_last(const char *text, size_t len, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = len >= n ? len - n + 1 : 0; i-- > 0;)
        if (memcmp(text + i, word, n) == 0) return text + i;
    return NULL;
}

static bool ends_with(const char *text, size_t len, const char *word)
{
    size_t n = strlen(word);
    return len >= n && memcmp(text + len - n, word, n) == 0;
}

/* A prompt that opened a channel: the answer is that message's text. */
static void begin_channel(tool_parser *p, const char *tail, size_t len)
{
    const char *start = find_last(tail, len, "<|start|>");
    const char *channel = find_last(tail, len, "<|channel|>");
    if (channel && (!start || channel > start))
        keep(p, &p->in.buf, channel, (size_t)(tail + len - channel));
}

void tool_parser_begin(tool_parser *p, const char *tail, size_t len)
{
    const reasoning_format *f = p->params.reasoning;
    if (p->format && p->format->flags & TOOL_CHANNELS) begin_channel(p, tail, len);
    if (!f || !f->open) return;
    while (len && is_space(tail[len - 1]))
        len--;
    if (ends_with(tail, len, f->open)) p->thinking = THINK_START_INSIDE;
    /* Who thinks all the same says so. */
    if (ends_with(tail, len, f->close)) p->thinking = THINK_START;
}

rad_status tool_parser_feed(tool_parser *p, const char *text, size_t len, said_fn fn, void *user)
{
    p->say = fn;
    p->user = user;
    if (p->thinking == THINK_OVER) {
        to_calls(p, text, len);
    } else if (!p->failed) {
        queue_drop(&p->raw);
        keep(p, &p->raw.buf, text, len);
        if (!p->failed) think_on(p);
    }
    return p->failed ? RAD_E_NOMEM : RAD_OK;
}

rad_status tool_parser_finish(tool_parser *p, said_fn fn, void *user)
{
    p->say = fn;
    p->user = user;
    p->at_end = true;
    if (!p->failed) keep(p, &p->raw.buf, "", 0); /* so that there are buffers to look at */
    if (!p->failed) think_on(p);
    if (!p->failed && p->thinking == THINK_OVER) to_calls(p, "", 0);
    return p->failed ? RAD_E_NOMEM : RAD_OK;
}

bool tool_parser_thinks(const tool_parser *p)
{
    if (p->format && p->format->flags & TOOL_CHANNELS) return p->channel == SAID_REASONING;
    return p->thinking == THINK_INSIDE || p->thinking == THINK_START_INSIDE;
}

bool tool_parser_is_over(const tool_parser *p)
{
    return p->over;
}

size_t tool_parser_bytes(const tool_parser *p)
{
    return sizeof *p + p->raw.buf.cap + p->in.buf.cap + p->name.cap + p->id.cap + p->args.cap +
           p->scratch.cap;
}
