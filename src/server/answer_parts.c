/* answer_parts.c - pieces into parts. */
#include "server/answer_parts.h"

#include "base/base.h"
#include "server/random_id.h"

#include <stdio.h>
#include <stdlib.h>

/* A new part behind the last, which has ended with that. NULL: no memory. */
static answer_part *push(answer_parts *p, part_kind kind)
{
    if (p->count == p->cap) {
        uint32_t cap = p->cap ? 2 * p->cap : 4;
        if (!memory_budget_take(p->budget, (cap - p->cap) * sizeof *p->list)) return NULL;
        answer_part *list = realloc(p->list, cap * sizeof *list);
        if (!list) {
            memory_budget_give(p->budget, (cap - p->cap) * sizeof *p->list);
            return NULL;
        }
        p->list = list;
        p->cap = cap;
    }
    answer_parts_end(p);
    answer_part *part = &p->list[p->count++];
    *part = (answer_part){.kind = kind};
    return part;
}

/* Templates of Mistral's demand 9 letters or digits. */
static void set_id(const answer_parts *p, answer_part *part, const said *what)
{
    char random[RANDOM_ID_BYTES];
    if (what->id_len && what->id_len < sizeof part->id && (!p->short_ids || what->id_len == 9)) {
        snprintf(part->id, sizeof part->id, "%.*s", (int)what->id_len, what->id);
        return;
    }
    random_id(random);
    if (p->short_ids)
        snprintf(part->id, sizeof part->id, "%.9s", random);
    else
        snprintf(part->id, sizeof part->id, "call_%.24s", random);
}

static bool begin_call(answer_parts *p, const said *what)
{
    answer_part *part = push(p, PART_CALL);
    if (!part) return false;
    part->index = what->index;
    set_id(p, part, what);
    part->name = strndup(what->text, what->len); /* short, as the parser has it */
    return part->name != NULL;
}

static bool add_text(answer_parts *p, part_kind kind, const said *what)
{
    answer_part *last = p->count ? &p->list[p->count - 1] : NULL;
    if (!last || last->kind != kind || last->ended) last = push(p, kind);
    return last && byte_buf_append(p->budget, &last->text, what->text, what->len);
}

bool answer_parts_take(void *user, const said *what)
{
    answer_parts *p = user;
    switch (what->kind) {
    case SAID_CONTENT: return add_text(p, PART_CONTENT, what);
    case SAID_REASONING: return add_text(p, PART_REASONING, what);
    case SAID_CALL: return begin_call(p, what);
    case SAID_ARGUMENTS: return add_text(p, PART_CALL, what);
    default: break;
    }
    p->list[p->count - 1].broken = what->broken;
    if (!what->broken) p->num_calls++;
    answer_parts_end(p);
    return true;
}

void answer_parts_end(answer_parts *p)
{
    if (p->count) p->list[p->count - 1].ended = true;
}

void answer_parts_fini(answer_parts *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        byte_buf_fini(p->budget, &p->list[i].text);
        free(p->list[i].name);
    }
    memory_budget_give(p->budget, p->cap * sizeof *p->list);
    free(p->list);
    *p = (answer_parts){0};
}

bool answer_part_has_news(const answer_part *part)
{
    return !part->said_begin || part->text.len > part->sent || (part->ended && !part->said_end);
}

bool answer_parts_have_news(const answer_parts *p)
{
    for (uint32_t i = p->first_unsaid; i < p->count; i++)
        if (answer_part_has_news(&p->list[i])) return true;
    return false;
}

size_t answer_parts_unsent(const answer_parts *p)
{
    size_t bytes = 0;
    for (uint32_t i = p->first_unsaid; i < p->count; i++)
        bytes += p->list[i].text.len - p->list[i].sent;
    return bytes;
}

void answer_part_said(answer_parts *p, answer_part *part)
{
    part->said_begin = true;
    part->sent = part->text.len;
    part->said_end = part->ended;
    while (p->first_unsaid < p->count && p->list[p->first_unsaid].said_end)
        p->first_unsaid++;
}
