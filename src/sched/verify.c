/* verify.c - the records; verify_run.c computes them. */
#include "sched/verify.h"

#include "base/mix64.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "sched/verify_run.h"

void verify_init(verifier *v, const rad_env *env, double rate, uint64_t seed)
{
    *v = (verifier){.env = *env, .seed = seed};
    if (rate > 0) v->threshold = rate >= 1 ? UINT32_MAX : (uint32_t)(rate * UINT32_MAX) + 1;
}

void verify_free(verifier *v, verify_record *record)
{
    if (!record) return;
    rad_free(&v->env, record->ids, record->num_ids * sizeof *record->ids);
    rad_free(&v->env, record->digests, record->capacity * sizeof *record->digests);
    rad_free(&v->env, record, sizeof *record);
    v->num_records--;
}

void verify_fini(verifier *v)
{
    for (verify_record *r = v->first, *next; r; r = next) {
        next = r->next;
        verify_free(v, r);
    }
    v->first = v->last = NULL;
}

uint64_t verify_digest(const float *logits, uint32_t vocab_size)
{
    return XXH3_64bits(logits, (size_t)vocab_size * sizeof *logits);
}

void verify_queue(verifier *v, verify_record *record)
{
    *(v->last ? &v->last->next : &v->first) = record;
    v->last = record;
}

/* Room for one more digest, by doubling. */
static bool grow(verifier *v, verify_record *r)
{
    if (r->num_digests < r->capacity) return true;
    uint64_t capacity = RAD_MAX(2 * (uint64_t)r->capacity, (uint64_t)64);
    uint64_t *digests = rad_alloc(&v->env, rad_mul(capacity, sizeof *digests));
    if (!digests) return false;
    if (r->num_digests) memcpy(digests, r->digests, r->num_digests * sizeof *digests);
    rad_free(&v->env, r->digests, r->capacity * sizeof *digests);
    r->digests = digests;
    r->capacity = (uint32_t)capacity;
    return true;
}

static void skip(verifier *v, req *r)
{
    verify_free(v, r->verify);
    r->verify = NULL;
    r->verify_skipped = true;
    v->stats.num_skipped++;
}

bool verify_notes(const verifier *v, const req *r)
{
    if (!v->threshold || r->verify_skipped) return false;
    if (r->num_output) return r->verify;
    return (uint32_t)mix64(v->seed ^ mix64(r->arrival)) <= v->threshold;
}

void verify_note(verifier *v, req *r, const float *logits, uint32_t vocab_size)
{
    if (!r->num_output) {
        if (v->num_records == VERIFY_QUEUE ||
            !(r->verify = rad_alloc(&v->env, sizeof *r->verify))) {
            r->verify_skipped = true;
            v->stats.num_skipped++;
            return;
        }
        v->num_records++;
        r->verify->arrival = r->arrival;
        r->verify->num_input = r->num_input;
    }
    if (grow(v, r->verify))
        r->verify->digests[r->verify->num_digests++] = verify_digest(logits, vocab_size);
    else
        skip(v, r);
}

void verify_submit(verifier *v, req *r, bool keep)
{
    verify_record *record = r->verify;
    if (!record) return;
    record->num_ids = req_num_fill(r);
    record->ids = keep ? rad_alloc(&v->env, record->num_ids * sizeof *record->ids) : NULL;
    if (!record->ids) {
        record->num_ids = 0;
        skip(v, r);
        return;
    }
    memcpy(record->ids, r->fill_ids, record->num_ids * sizeof *record->ids);
    r->verify = NULL;
    verify_queue(v, record);
    v->stats.num_pending++;
}
