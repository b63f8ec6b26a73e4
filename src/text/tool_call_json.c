/* tool_call_json.c - calls as JSON objects: {"name": "f", "arguments": {...}}.
 *
 * An object is a call once its name and the { of its arguments were seen. Usually that is all of it
 * but the arguments, which then go through as they come. Where the arguments come first, or are
 * a string or null, the call is said when the object has ended.
 *
 * Cohere's objects have other names for their members, and Apertus's are {"f": {...}}.
 *
 * Raw newlines and the like in strings, which models write, become escapes. */
#include "text/tool_call_impl.h"

/* ---- arguments ---- */

/* Says the value that p->json reads as far as it goes; *used: bytes of it. */
static json_scanned pass_json(tool_parser *p, const char *text, size_t len, size_t *used)
{
    size_t plain = 0, i = 0;
    json_scanned got = JSON_MORE;
    for (; i < len && !got; i++) {
        bool in_string = json_scan_in_string(&p->json);
        got = json_scan_push(&p->json, text[i]);
        if (!in_string || (unsigned char)text[i] >= ' ') continue;
        call_args(p, text + plain, i - plain);
        p->scratch.len = 0;
        if (json_escape(&p->scratch, text + i, 1) != RAD_OK) p->failed = true;
        call_args(p, p->scratch.data, p->scratch.len);
        plain = i + 1;
    }
    if (got == JSON_BAD || got == JSON_BEFORE) i--;
    call_args(p, text + plain, i - plain);
    *used = i;
    return got;
}

step args_json(tool_parser *p)
{
    size_t used;
    json_scanned got = pass_json(p, here(p), left(p), &used);
    p->at += used;
    settle(p);
    return got == JSON_DONE ? STEP_DONE : got ? STEP_TEXT : STEP_MORE;
}

bool args_value(tool_parser *p, const char *text, size_t len)
{
    json_scan s;
    size_t used;
    json_scan_begin(&s);
    json_scanned got = JSON_MORE;
    for (size_t i = 0; i < len && !got; i++)
        if ((got = json_scan_push(&s, text[i])) && i + 1 < len) return false;
    if (!got) got = json_scan_push(&s, ' '); /* a number ends with what follows it */
    if (got != JSON_DONE && got != JSON_BEFORE) return false;
    json_scan_begin(&p->json);
    pass_json(p, text, len, &used);
    return true;
}

/* ---- one object ---- */

static bool is_key(const char *key, size_t len, const char *word)
{
    return len == strlen(word) + 2 && memcmp(key + 1, word, len - 2) == 0;
}

static size_t over_space(const char *text, size_t len, size_t at)
{
    while (at < len && is_space(text[at]))
        at++;
    return at;
}

/* The members from text[at] on, a { or , in front. 1: up to the { of the arguments of a call whose
 * name is known; 2: to the object's end; 0: not decided; -1: no call. */
static int read_members(const char *text, size_t len, size_t at, bool strict, unsigned flags,
                        call_header *h)
{
    const char *name_word = flags & TOOL_TOOL_NAME ? "tool_name" : "name";
    for (;;) {
        at = over_space(text, len, at + 1);
        if (at == len) return 0;
        if (text[at] != '"') return -1;
        ptrdiff_t n = json_scan_value(text + at, len - at);
        if (n <= 0) return (int)n;
        const char *key = text + at;
        size_t key_len = (size_t)n;
        at = over_space(text, len, at + key_len);
        if (at == len) return 0;
        if (text[at] != ':') return -1;
        at = over_space(text, len, at + 1);
        if (at == len) return 0;
        bool args = is_key(key, key_len, "arguments") || is_key(key, key_len, "parameters");
        bool name = is_key(key, key_len, name_word), id = is_key(key, key_len, "id");
        if (flags & TOOL_NAME_IS_KEY && !h->name.len) {
            if (text[at] != '{' || !is_name(key + 1, key_len - 2)) return -1;
            h->name = (span){(size_t)(key - text) + 1, key_len - 2};
            args = true;
        }
        if (strict && !args && !name && !id && !is_key(key, key_len, "type")) return -1;
        if (args && text[at] == '{' && h->name.len) {
            h->behind = at;
            return 1;
        }
        n = json_scan_value(text + at, len - at);
        if (n <= 0) return (int)n;
        span value = {at, (size_t)n}, inner = {at + 1, (size_t)n - 2};
        if (args) h->whole = value;
        if (name && (text[at] != '"' || !is_name(text + inner.at, inner.len))) return -1;
        if (name) h->name = inner;
        if (id && text[at] == '"' && is_name(text + inner.at, inner.len)) h->id = inner;
        at = over_space(text, len, at + (size_t)n);
        if (at == len) return 0;
        h->behind = at + 1;
        if (text[at] == '}') return 2;
        if (text[at] != ',') return -1;
    }
}

/* The arguments of an object that is whole, in a form that may be said; NULL: they are none. To be
 * freed with json_decref(*keep). */
static const char *whole_args(const char *text, const call_header *h, size_t *len, json_t **keep)
{
    const char *args = text + h->whole.at;
    *len = h->whole.len;
    *keep = NULL;
    if (!*len || *args == 'n') return *len = 2, "{}";
    if (*args == '{') return args;
    if (*args == '"') *keep = json_loadb(args, *len, JSON_DECODE_ANY, NULL);
    args = json_string_value(*keep);
    *len = json_string_length(*keep);
    return args && *args == '{' && json_scan_value(args, *len) == (ptrdiff_t)*len ? args : NULL;
}

static step begin_object(tool_parser *p, bool strict)
{
    call_header h = {0};
    const char *text = here(p);
    size_t len = left(p);
    if (p->in.buf.len < p->retry_at && !p->at_end) return STEP_MORE;
    int got = *text == '{' ? read_members(text, len, 0, strict, p->format->flags, &h) : -1;
    if (!got) { /* a long one is not read at every byte */
        p->retry_at = p->in.buf.len + len / 64;
        return STEP_MORE;
    }
    if (got < 0 || h.behind > TOOL_CALL_MOST_HELD || !h.name.len) return STEP_TEXT;
    if (strict && p->params.types && !tool_types_has(p->params.types, text + h.name.at, h.name.len))
        return STEP_TEXT;
    if (strict && got == 2 && !h.whole.len) return STEP_TEXT;
    json_t *kept = NULL;
    size_t args_len = 0;
    const char *args = got == 2 ? whole_args(text, &h, &args_len, &kept) : text;
    if (args) call_begin(p, text + h.name.at, h.name.len, text + h.id.at, h.id.len);
    if (args && got == 2) args_value(p, args, args_len);
    json_decref(kept);
    if (!args) return STEP_TEXT;
    p->at += h.behind;
    settle(p);
    json_scan_begin(&p->json);
    p->state++;
    if (got == 1) return STEP_AGAIN;
    call_end(p);
    return STEP_DONE;
}

/* What follows the arguments, up to the }. */
static step end_object(tool_parser *p, bool strict)
{
    call_header h = {.name = {0, 1}};
    const char *text = here(p);
    size_t len = left(p), at = over_space(text, len, 0);
    if (at == len) return STEP_MORE;
    int got = -1;
    if (text[at] == '}') got = 2;
    if (text[at] == ',') got = read_members(text, len, at, strict, p->format->flags, &h);
    if (text[at] == '}') h.behind = at + 1;
    if (!got) return STEP_MORE;
    if (got != 2) return STEP_TEXT;
    p->at += h.behind;
    call_end(p);
    return STEP_DONE;
}

step call_object(tool_parser *p, bool strict)
{
    if (p->state == 0) {
        if (!skip_space(p)) return STEP_MORE;
        return begin_object(p, strict);
    }
    if (p->state == 1) {
        step s = args_json(p);
        if (s != STEP_DONE) return s;
        p->state = 2;
    }
    return end_object(p, strict);
}

/* ---- several ---- */

enum { LIST_ITEM = 0, LIST_AFTER = 3, LIST_NEXT = 4 };

step call_list(tool_parser *p)
{
    if (p->state < LIST_AFTER) {
        step s = call_object(p, false);
        if (s == STEP_DONE) p->state = LIST_AFTER;
        return s == STEP_DONE ? STEP_AGAIN : s;
    }
    if (!skip_space(p)) return p->at_end ? STEP_DONE : STEP_MORE;
    char c = *here(p);
    if (p->state == LIST_NEXT && c == '{') {
        p->state = LIST_ITEM;
        p->in.start = p->at;
        return STEP_AGAIN;
    }
    if (c != ']' && (c != ',' || p->state == LIST_NEXT)) return STEP_DONE;
    p->at++;
    p->in.start = p->at;
    if (c == ']') return STEP_DONE;
    p->state = LIST_NEXT;
    return STEP_AGAIN;
}

match skip_words(tool_parser *p, const char *const *words)
{
    for (bool again = true; again;) {
        again = false;
        if (!skip_space(p)) return MATCH_PART;
        for (size_t i = 0; words[i] && !again; i++) {
            match m = match_word(here(p), left(p), words[i]);
            if (m == MATCH_PART && !p->at_end) return MATCH_PART;
            if (m == MATCH_PART) p->at = p->in.buf.len; /* a cut marker is no text */
            if (m == MATCH_YES) p->at += strlen(words[i]);
            again = m != MATCH_NO;
        }
    }
    return MATCH_NO;
}

/* ---- formats ---- */

step step_hermes(tool_parser *p)
{
    static const char *const closers[] = {"</tool_call>", NULL};
    enum { AFTER = 3, CLOSERS = 4 };
    if (p->state < AFTER) {
        step s = call_object(p, false);
        if (s == STEP_DONE) p->state = AFTER;
        return s == STEP_DONE ? STEP_AGAIN : s;
    }
    if (p->state == AFTER) {
        if (!skip_space(p)) return p->at_end ? STEP_DONE : STEP_MORE;
        p->state = *here(p) == '{' ? 0 : CLOSERS; /* several between one pair of markers */
        p->in.start = p->at;
        return STEP_AGAIN;
    }
    return skip_words(p, closers) == MATCH_PART && !p->at_end ? STEP_MORE : STEP_DONE;
}

step step_llama3(tool_parser *p)
{
    enum { AFTER = 3, NEXT = 4, BARE = 255 };
    if (p->state < AFTER) {
        step s = call_object(p, p->opened == BARE);
        if (s == STEP_DONE) p->state = AFTER;
        return s == STEP_DONE ? STEP_AGAIN : s;
    }
    if (!skip_space(p)) return p->at_end ? STEP_DONE : STEP_MORE;
    if (*here(p) == '{') {
        p->state = 0;
        p->in.start = p->at;
        return STEP_AGAIN;
    }
    if (*here(p) != ';' || p->state == NEXT) return STEP_DONE;
    p->at++;
    p->in.start = p->at;
    p->state = NEXT;
    return STEP_AGAIN;
}

step call_list_closed(tool_parser *p, const char *const *closers)
{
    enum { OPEN, LIST = 50, CLOSERS = 100 };
    if (p->state == OPEN) {
        if (!skip_space(p)) return STEP_MORE;
        if (*here(p) == '[') {
            if (left(p) < 2) return STEP_MORE;
            size_t at = over_space(here(p), left(p), 1);
            if (at == left(p)) return STEP_MORE;
            if (here(p)[at] != '{') return STEP_TEXT;
            p->at += at;
        }
        p->state = LIST;
    }
    if (p->state < CLOSERS) {
        p->state -= LIST;
        step s = call_list(p);
        p->state += LIST;
        if (s != STEP_DONE) return s;
        p->state = CLOSERS;
    }
    if (!closers) return STEP_DONE;
    return skip_words(p, closers) == MATCH_PART && !p->at_end ? STEP_MORE : STEP_DONE;
}

step step_list(tool_parser *p)
{
    return call_list_closed(p, p->format->words);
}
