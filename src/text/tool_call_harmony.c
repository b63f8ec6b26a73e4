/* tool_call_harmony.c - gpt-oss: messages on channels, each with a header.
 *
 *     <|channel|>analysis<|message|>so ...<|end|>                     reasoning
 *     <|start|>assistant<|channel|>final<|message|>Hello<|return|>    content
 *     <|start|>assistant<|channel|>commentary to=functions.f
 * <|constrain|>json<|message|>{...}<|call|>
 *
 * A recipient makes a call of it, whatever the channel; commentary without one is for the user.
 * Where the answer begins without a header it is content. Two messages of one kind are set apart by
 * an empty line. */
#include "text/tool_call_impl.h"

#include <stdio.h>

enum { H_START, H_HEADER, H_TEXT, H_CALL, H_ARGS, H_SKIP };
enum { MOST_HEADER = 1024 };

static const char *const ends[] = {"<|end|>",   "<|return|>",  "<|call|>",
                                   "<|start|>", "<|channel|>", NULL};

static step go(tool_parser *p, uint8_t state)
{
    p->state = state;
    return STEP_AGAIN;
}

static step h_start(tool_parser *p)
{
    bool part = false;
    settle(p);
    if (!left(p)) return STEP_MORE;
    for (int i = 0; ends[i]; i++) {
        match m = match_word(here(p), left(p), ends[i]);
        part = part || m == MATCH_PART;
        if (m != MATCH_YES) continue;
        if (i >= 3) return go(p, H_HEADER);
        p->at += strlen(ends[i]);
        return STEP_AGAIN;
    }
    if (part && !p->at_end) return STEP_MORE;
    p->channel = SAID_CONTENT;
    p->first = true;
    return go(p, H_TEXT);
}

/* Where `word` stands in text[0..len), behind it; NULL: it does not. */
static const char *behind(const char *text, size_t len, const char *word)
{
    const char *const words[] = {word, NULL};
    int which;
    size_t at = find_words(text, len, words, &which);
    return which < 0 ? NULL : text + at + strlen(word);
}

static step h_header(tool_parser *p)
{
    const char *text = here(p);
    size_t most = RAD_MIN(left(p), (size_t)MOST_HEADER); /* wherever it is cut */
    const char *end = behind(text, most, "<|message|>");
    p->first = true;
    p->channel = SAID_CONTENT;
    if (!end && most == MOST_HEADER) {
        p->at = (size_t)(behind(text, left(p), "|>") - p->in.buf.data); /* else it is found again */
        settle(p);
        return go(p, H_TEXT);
    }
    if (!end) {
        if (p->at_end) p->at = p->in.buf.len; /* a cut header says nothing */
        settle(p);
        return STEP_MORE;
    }
    size_t len = (size_t)(end - text);
    const char *channel = behind(text, len, "<|channel|>"), *to = behind(text, len, "to=");
    if (channel && match_word(channel, (size_t)(end - channel), "analysis") == MATCH_YES &&
        p->params.reasoning)
        p->channel = SAID_REASONING;
    p->at += len;
    settle(p);
    if (!to || !p->params.calls) return go(p, H_TEXT);
    size_t n = 0;
    while (to + n < end && !is_space(to[n]) && to[n] != '<')
        n++;
    if (n > 10 && memcmp(to, "functions.", 10) == 0) to += 10, n -= 10;
    if (!is_name(to, n)) return go(p, H_TEXT);
    snprintf(p->value_of, sizeof p->value_of, "%.*s", (int)n, to);
    return go(p, H_CALL);
}

static step h_text(tool_parser *p)
{
    int which;
    size_t end = find_words(here(p), left(p), ends, &which);
    if (which < 0 && p->at_end) end = left(p);
    if (end && p->first) {
        if (p->last_channel == p->channel + 1) say_text(p, (said_kind)p->channel, "\n\n", 2);
        p->first = false;
        p->last_channel = (uint8_t)(p->channel + 1);
    }
    say_text(p, (said_kind)p->channel, here(p), end);
    p->at += end;
    settle(p);
    if (which >= 0) return go(p, H_START);
    return STEP_MORE;
}

/* Behind a call's header. */
static step h_call(tool_parser *p)
{
    if (!skip_space(p) && !p->at_end) return STEP_MORE;
    settle(p);
    int which;
    bool empty = !left(p) || (find_words(here(p), left(p), ends, &which) == 0 && which >= 0);
    if (!empty && *here(p) == '<' && which < 0 && !p->at_end && left(p) < 12) return STEP_MORE;
    if (!empty && *here(p) != '{') return go(p, H_TEXT);
    if (empty && !left(p)) return STEP_MORE; /* cut before the first argument: nothing was called */
    call_begin(p, p->value_of, strlen(p->value_of), NULL, 0);
    p->last_channel = 0;
    json_scan_begin(&p->json);
    if (!empty) return go(p, H_ARGS);
    call_args(p, "{}", 2);
    call_end(p);
    return go(p, H_START);
}

static step h_args(tool_parser *p)
{
    step s = args_json(p);
    if (s == STEP_DONE) {
        call_end(p);
        return go(p, H_SKIP);
    }
    if (s == STEP_TEXT) {
        call_break(p);
        p->channel = SAID_CONTENT;
        p->first = true;
        return go(p, H_TEXT);
    }
    return s;
}

/* What stands between a call and the end of its message is nobody's. */
static step h_skip(tool_parser *p)
{
    int which;
    p->at += find_words(here(p), left(p), ends, &which);
    if (p->at_end && which < 0) p->at = p->in.buf.len;
    settle(p);
    return which >= 0 ? go(p, H_START) : STEP_MORE;
}

step step_harmony(tool_parser *p)
{
    switch (p->state) {
    case H_START: return h_start(p);
    case H_HEADER: return h_header(p);
    case H_TEXT: return h_text(p);
    case H_CALL: return h_call(p);
    case H_ARGS: return h_args(p);
    default: return h_skip(p);
    }
}
