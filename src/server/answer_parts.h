/* answer_parts.h - an answer as what it is made of: reasoning, content and calls, in their order.
 *
 * The parser (text/tool_call.h) says pieces; here they are gathered, so that each dialect can say
 * what is new in its own form. Parts come one after another: a part has ended before the next one
 * begins, and text grows only at the last one. */
#ifndef SERVER_ANSWER_PARTS_H
#define SERVER_ANSWER_PARTS_H

#include "base/memory_budget.h"
#include "server/byte_buf.h"
#include "text/tool_call.h"

typedef enum part_kind { PART_REASONING, PART_CONTENT, PART_CALL } part_kind;

enum { PART_ID_BYTES = 64 };

typedef struct answer_part {
    part_kind kind;
    uint32_t index; /* of a call, from 0 */
    bool ended;     /* no more text will come */
    bool broken;    /* a call that bad JSON or the answer's end cut: text is no whole JSON */
    bool said_begin, said_end; /* the dialect's own, as `sent` is */
    size_t sent;               /* bytes of text that are in chunks */
    byte_buf text;             /* the words; of a call its arguments */
    char *name;                /* of a call, from the beginning; else NULL */
    char id[PART_ID_BYTES];    /* of a call: the model's own, or a made one. It never changes. */
} answer_part;

typedef struct answer_parts {
    answer_part *list;
    uint32_t count, cap;
    uint32_t num_calls;    /* that ended and are not broken */
    uint32_t first_unsaid; /* parts before it are said whole */
    bool short_ids;        /* Mistral's */
    memory_budget *budget; /* of list and texts; NULL: no limit */
} answer_parts;

/* A parser's said_fn; `user` is the answer_parts. */
bool answer_parts_take(void *parts, const said *what);
void answer_parts_end(answer_parts *p); /* the last part has ended */
void answer_parts_fini(answer_parts *p);

/* Everything of the part, as it is now, was said. */
void answer_part_said(answer_parts *p, answer_part *part);

/* Whether it has begun, grown or ended since then; whether any has, and bytes of text of that. */
bool answer_part_has_news(const answer_part *part);
bool answer_parts_have_news(const answer_parts *p);
size_t answer_parts_unsent(const answer_parts *p);

#endif
