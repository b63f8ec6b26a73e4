/* draft_copy.c - a place in the text, and what became of what.
 *
 *     follows     at ----> the next token is the same: at + 1
 *                     \--> it is not: the copy is left, at `left` and with the text's token `said`
 *     looks for   text since `said` is a known edit of what stands at `left`:  follows behind it
 *                 its last two tokens stand close behind `left`:               follows, a new edit
 *                 neither for COPY_FAR tokens:                                 nothing
 *
 * An edit begins with a token that differs, since there the copy was left. So where one could be
 * made and the text says the first token of what was, it was not made, and is forgotten.
 *
 * Invariant: at and left lie before the end of the text that was seen. */
#include "sched/draft_copy.h"

#include "base/base.h"

static bool is_at(const rad_token *ids, uint32_t at, uint32_t end, const rad_token *what,
                  uint32_t count)
{
    return at + count <= end && !memcmp(ids + at, what, count * sizeof *ids);
}

/* The latest edit of what stands at `at`, before `end`; NULL: there is none. */
static copy_edit *edit_at(copy_cursor *c, const rad_token *ids, uint32_t at, uint32_t end)
{
    for (uint32_t i = 0; i < c->num_edits; i++)
        if (is_at(ids, at, end, c->edits[i].from, c->edits[i].from_len)) return &c->edits[i];
    return NULL;
}

static void forget(copy_cursor *c, copy_edit *edit)
{
    const copy_edit *end = c->edits + c->num_edits--;
    memmove(edit, edit + 1, (size_t)(end - edit - 1) * sizeof *edit);
}

/* Another one of the same tokens is forgotten for it, or else the oldest. */
static void remember(copy_cursor *c, const rad_token *from, uint32_t from_len, const rad_token *to,
                     uint32_t to_len)
{
    if (!from_len || !to_len || from_len > COPY_FROM || to_len > COPY_TO) return;
    copy_edit edit = {.from_len = from_len, .to_len = to_len};
    memcpy(edit.from, from, from_len * sizeof *from);
    memcpy(edit.to, to, to_len * sizeof *to);
    for (uint32_t i = c->num_edits; i-- > 0;)
        if (c->edits[i].from_len == from_len &&
            is_at(from, 0, from_len, c->edits[i].from, from_len))
            forget(c, &c->edits[i]);
    if (c->num_edits == COPY_EDITS) c->num_edits--;
    memmove(c->edits + 1, c->edits, c->num_edits++ * sizeof *c->edits);
    c->edits[0] = edit;
}

static void follow(copy_cursor *c, uint32_t at)
{
    c->at = at;
    c->left = 0;
}

/* A known edit of what stands where the copy was left, of which the text has said as much as it has
 * said since; NULL: there is none. */
static const copy_edit *edit_begun(const copy_cursor *c, const rad_token *ids, uint32_t num_ids)
{
    const uint32_t said = num_ids - c->said;
    for (uint32_t i = 0; i < c->num_edits; i++) {
        const copy_edit *e = &c->edits[i];
        if (said <= e->to_len && is_at(ids, c->left, c->said, e->from, e->from_len) &&
            is_at(e->to, 0, e->to_len, ids + c->said, said))
            return e;
    }
    return NULL;
}

static void look_for(copy_cursor *c, const rad_token *ids, uint32_t num_ids)
{
    const copy_edit *known = edit_begun(c, ids, num_ids);
    const uint32_t said = num_ids - c->said;
    if (known) {
        if (known->to_len == said) follow(c, c->left + known->from_len);
        return;
    }
    if (said > COPY_FAR) c->left = 0;
    if (!c->left || said < 2) return;
    for (uint32_t at = c->left; at <= c->left + COPY_FAR; at++) {
        if (!is_at(ids, at, c->said, ids + num_ids - 2, 2)) continue;
        remember(c, ids + c->left, at - c->left, ids + c->said, said - 2);
        c->same = RAD_MIN(c->same, (uint32_t)COPY_AGAIN);
        follow(c, at + 2);
        return;
    }
}

/* The text's token `i` was said. */
static void step(copy_cursor *c, const rad_token *ids, uint32_t i)
{
    if (c->at && ids[c->at] == ids[i]) {
        copy_edit *edit = edit_at(c, ids, c->at, i);
        if (edit) forget(c, edit);
        c->at++;
        c->same++;
        return;
    }
    if (c->at) {
        c->left = c->at;
        c->said = i;
        c->at = 0;
    }
    if (c->left) look_for(c, ids, i + 1);
}

/* What stands from `at` on, edited. What runs on behind the text's end is the guess itself. */
static uint32_t copy(copy_cursor *c, const rad_token *ids, uint32_t num_ids, uint32_t at,
                     rad_token *out, uint32_t count, uint32_t room)
{
    while (count < room && (at < num_ids || at - num_ids < count)) {
        const copy_edit *edit = edit_at(c, ids, at, num_ids);
        if (!edit) {
            out[count++] = at < num_ids ? ids[at] : out[at - num_ids];
            at++;
            continue;
        }
        for (uint32_t i = 0; i < edit->to_len && count < room; i++)
            out[count++] = edit->to[i];
        at += edit->from_len;
    }
    return count;
}

uint32_t copy_propose(copy_cursor *c, const rad_token *ids, uint32_t num_ids, uint32_t place,
                      rad_token *out, uint32_t count, uint32_t room, uint32_t *match)
{
    if (!c->seen) c->seen = num_ids; /* a prompt copies nothing */
    for (; c->seen < num_ids; c->seen++)
        step(c, ids, c->seen);
    if (*match >= COPY_LEAST && (!c->at || *match > c->same)) {
        c->same = *match;
        follow(c, place);
    }
    if (c->at && c->same >= *match) {
        *match = c->same;
        return copy(c, ids, num_ids, c->at, out, 0, room);
    }
    const copy_edit *begun = c->left ? edit_begun(c, ids, num_ids) : NULL;
    if (!begun) return count;
    *match = c->same;
    const uint32_t said = num_ids - c->said, rest = RAD_MIN(begun->to_len - said, room);
    memcpy(out, begun->to + said, rest * sizeof *out);
    return copy(c, ids, num_ids, c->left + begun->from_len, out, rest, room);
}
