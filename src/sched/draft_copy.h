/* draft_copy.h - an answer that copies its own text with edits: what was edited once is guessed to
 * be edited again.
 *
 *     before   int n = page->size;  for (...)  n += page->first;
 *     answer   int total = page->size;  for (...)  | total += page->first;
 *                                                    ^ guessed: "n" became "total" before
 *
 * The index of a text (draft_ngram.h) finds where the last tokens stood before. A name that was
 * changed is an end to that: behind it the last tokens stood nowhere, or where the answer itself
 * used the name. So a cursor follows the copy from place to place. Where the answer leaves it, the
 * cursor waits for it close behind that place, and remembers what came in place of what: the
 * COPY_EDITS latest pairs. One that is not made again is forgotten. */
#ifndef SCHED_DRAFT_COPY_H
#define SCHED_DRAFT_COPY_H

#include <radish/types.h>

#include <stdint.h>

enum {
    COPY_LEAST = 8,  /* tokens that are the same before a copy is followed */
    COPY_AGAIN = 15, /* what a copy counts for at most that was found again behind an edit */
    COPY_FAR = 24,   /* tokens, of either text, behind which it is not looked for any more */
    COPY_EDITS = 8,
    COPY_FROM = 4, /* tokens of an edit that is remembered, before */
    COPY_TO = 8    /* and after */
};

typedef struct copy_edit {
    uint32_t from_len, to_len; /* both at least 1 */
    rad_token from[COPY_FROM], to[COPY_TO];
} copy_edit;

/* A request's; zeroed at first. */
typedef struct copy_cursor {
    uint32_t seen; /* tokens of the text that it knows; 0: none yet */
    uint32_t at;   /* the place in the text that is copied next; 0: it follows nothing */
    uint32_t same; /* tokens before it that were the same, edits apart */
    uint32_t left; /* it follows nothing: where the copy was left, 0: it is not looked for; */
    uint32_t said; /* and the first token that the text has instead */
    uint32_t num_edits;
    copy_edit edits[COPY_EDITS]; /* the latest first */
} copy_cursor;

/* out[0..count) is what stood in ids[0..num_ids) from `place` on, behind *match tokens that are the
 * same as the text's last ones. Where the cursor knows better, its guess is there instead, of up to
 * `room` tokens, and *match what it is worth. Returns how many tokens there are. */
uint32_t copy_propose(copy_cursor *c, const rad_token *ids, uint32_t num_ids, uint32_t place,
                      rad_token *out, uint32_t count, uint32_t room, uint32_t *match);

#endif
