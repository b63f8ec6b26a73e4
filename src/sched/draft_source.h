/* draft_source.h - who guesses tokens: one table.
 *
 *     forced       what the request's rule forces            given   scheduler_params.draft_given
 *     prediction   what the client says will come            tree    what others went on with
 *     ngram        the request's own text                    recent  recent answers
 *     model        a small model                             nextn   a head of the model itself
 *
 * Each step every source that is on is asked what a decoding request will say, and the one that is
 * believed most is drafted (draft.c). What a source has to compute for several requests at once,
 * and what costs more than looking something up, it does in prepare: that is called after the
 * sources without one have been asked, for those requests only that they have no better guess of.
 *
 * A guess is about a request whose text ends with fill_ids[num_fill - 1]; what came of the last
 * guess stands there. Nothing depends on a guess but how fast the request goes on. Wrong ones cost
 * rows, so a source says of each guess how good it thinks it is, as a grade: grades are only
 * compared with what came of earlier guesses of the same source and grade. */
#ifndef SCHED_DRAFT_SOURCE_H
#define SCHED_DRAFT_SOURCE_H

#include "base/base.h"
#include "sched/scheduler_stats.h"

struct req;
struct scheduler;

enum { DRAFT_GRADES = 6 };

typedef struct draft_source {
    const char *name;          /* in --speculative-algorithm and metrics */
    float prior[DRAFT_GRADES]; /* the chance that a token is right, before anything is known */

    /* Once in a step, before propose: for these requests up to `room` tokens each are of use. NULL:
     * there is nothing to do beforehand. */
    void (*prepare)(struct scheduler *s, struct req *const *reqs, uint32_t count, uint32_t room);

    /* Up to `room` tokens that r's fill_ids may go on with, 0: it knows none; and their grade,
     * which is 0 unless it is set. */
    uint32_t (*propose)(struct scheduler *s, struct req *r, rad_token *out, uint32_t room,
                        uint32_t *grade);

    /* The request has ended, or waits again and begins anew: what is kept for it goes. Also of
     * requests that were never proposed for. NULL: nothing is kept. */
    void (*release)(struct scheduler *s, struct req *r);
} draft_source;

/* NULL: of this kind there is none. */
const draft_source *draft_source_of(draft_kind kind);

static inline uint32_t draft_bit(draft_kind kind)
{
    return 1u << kind;
}

/* Names with commas between them, as --speculative-algorithm has them, in any case; "none": no
 * source. The bits of those named; the forced ones are always on. RAD_E_INVAL in words. */
rad_status draft_sources_parse(const char *text, uint32_t *bits, rad_error *err);

/* More tokens before a guess that match, a better grade: 1, 2, 4, 8, 16, 32. */
static inline uint32_t draft_grade_of_match(uint32_t tokens)
{
    uint32_t grade = 0;
    while (grade + 1 < DRAFT_GRADES && tokens >> (grade + 1))
        grade++;
    return grade;
}

#endif
