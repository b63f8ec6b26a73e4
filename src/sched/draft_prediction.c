/* draft_prediction.c - a cursor in the prediction, and hash chains to find it again.
 *
 *     heads[hash of three tokens] -> position behind them -> prev[position] -> ...
 *
 * An edit ends where a run of equal tokens begins again. Looked for from the edit onwards, one
 * token is enough close by and two a little further; three are looked up in the chains, and of the
 * places found the one with the longest run counts, among equals the nearest behind the edit.
 *
 * A short run may be chance: "the" stands in most sentences. So the edit's place (left) moves only
 * behind a run of PREDICTION_KEY tokens, and chance does not carry the search away.
 *
 * Invariant: chains hold the positions PREDICTION_KEY .. count, each once, in descending order. */
#include "sched/draft_prediction.h"

#include "base/mix64.h"

struct prediction {
    uint32_t count, heads_log2;
    uint32_t *heads; /* 0: none */
    uint32_t *prev;  /* [count + 1] */
    rad_token *ids;
};

static uint32_t log2_of_heads(uint32_t num_ids)
{
    uint32_t log2 = 4;
    while (log2 < 31 && UINT32_C(1) << log2 < num_ids)
        log2++;
    return log2;
}

size_t prediction_bytes(uint32_t num_ids)
{
    return sizeof(prediction) + (sizeof(uint32_t) << log2_of_heads(num_ids)) +
           ((size_t)num_ids + 1) * sizeof(uint32_t) + num_ids * sizeof(rad_token);
}

/* Of the tokens before position `at`. */
static uint32_t hash_before(const prediction *p, const rad_token *ids, uint32_t at)
{
    uint64_t hash = 0;
    for (uint32_t i = at - PREDICTION_KEY; i < at; i++)
        hash = mix64(hash + (uint32_t)ids[i] + 1);
    return (uint32_t)(hash >> (64 - p->heads_log2));
}

rad_status prediction_create(const rad_env *env, const rad_token *ids, uint32_t num_ids,
                             prediction **out, rad_error *err)
{
    prediction *p = rad_alloc(env, prediction_bytes(num_ids));
    *out = p;
    if (!p) return rad_fail(err, RAD_E_NOMEM, "no memory for a prediction");
    p->count = num_ids;
    p->heads_log2 = log2_of_heads(num_ids);
    p->heads = (uint32_t *)(p + 1);
    p->prev = p->heads + (UINT32_C(1) << p->heads_log2);
    p->ids = (rad_token *)(p->prev + num_ids + 1);
    if (num_ids) memcpy(p->ids, ids, num_ids * sizeof *ids);
    for (uint32_t at = PREDICTION_KEY; at <= num_ids; at++) {
        uint32_t *head = &p->heads[hash_before(p, p->ids, at)];
        p->prev[at] = *head;
        *head = at;
    }
    return RAD_OK;
}

void prediction_destroy(const rad_env *env, prediction *p)
{
    if (p) rad_free(env, p, prediction_bytes(p->count));
}

uint32_t prediction_tokens(const prediction *p)
{
    return p->count;
}

/* Tokens before `at` that are the answer's last ones. */
static uint32_t same_before(const prediction *p, uint32_t at, const rad_token *answer, uint32_t num)
{
    const uint32_t most = RAD_MIN(RAD_MIN(at, num), (uint32_t)PREDICTION_LONGEST);
    uint32_t n = 0;
    while (n < most && p->ids[at - 1 - n] == answer[num - 1 - n])
        n++;
    return n;
}

/* How far behind the edit; what lies before it is further than all that follows. */
static uint32_t distance(const prediction *p, uint32_t left, uint32_t at)
{
    return at > left ? at - left : p->count + (left - at);
}

/* The answer has left the prediction: where does it go on? */
static void find(const prediction *p, prediction_cursor *c, const rad_token *answer, uint32_t num)
{
    uint32_t at = num < PREDICTION_KEY ? 0 : p->heads[hash_before(p, answer, num)];
    for (int tries = 0; tries < PREDICTION_TRIES && at; tries++, at = p->prev[at]) {
        const uint32_t same = same_before(p, at, answer, num);
        if (same < PREDICTION_KEY || same < c->same) continue; /* less, or the same hash alone */
        if (same > c->same || distance(p, c->left, at) < distance(p, c->left, c->at))
            c->same = same, c->at = at;
    }
    if (c->same) return;
    const uint32_t end = c->left + RAD_MIN(p->count - c->left, (uint32_t)PREDICTION_NEAR);
    for (at = c->left + 1; at <= end; at++) {
        const bool next = at <= c->left + PREDICTION_NEXT;
        if (p->ids[at - 1] != answer[num - 1]) continue;
        if (!next && (at < 2 || num < 2 || p->ids[at - 2] != answer[num - 2])) continue;
        c->same = same_before(p, at, answer, num);
        c->at = at;
        return;
    }
}

static void step(const prediction *p, prediction_cursor *c, const rad_token *answer)
{
    const rad_token token = answer[c->seen++];
    const bool begins = c->seen == 1;
    if ((c->same || begins) && c->at < p->count && p->ids[c->at] == token) {
        c->at++;
        c->same++;
        return;
    }
    if (c->same >= PREDICTION_KEY) c->left = c->at;
    c->same = 0;
    find(p, c, answer, c->seen);
}

uint32_t prediction_propose(const prediction *p, prediction_cursor *c, const rad_token *answer,
                            uint32_t num, rad_token *out, uint32_t room, uint32_t *match)
{
    while (c->seen < num)
        step(p, c, answer);
    *match = c->same;
    if (!c->same && num) return 0;
    const uint32_t count = RAD_MIN(room, p->count - c->at);
    if (count) memcpy(out, p->ids + c->at, count * sizeof *out);
    return count;
}

uint32_t prediction_accepted(const rad_env *env, const prediction *p, const rad_token *answer,
                             uint32_t num)
{
    const size_t bytes = (p->count + 7) / 8;
    uint8_t *seen = bytes ? rad_alloc(env, bytes) : NULL;
    prediction_cursor c = {0};
    uint32_t accepted = 0;
    while (seen && c.seen < num) {
        step(p, &c, answer);
        /* A run that was found again may begin some tokens earlier. */
        for (uint32_t at = c.at, n = c.same; n && !(seen[(at - 1) / 8] >> (at - 1) % 8 & 1);
             at--, n--) {
            seen[(at - 1) / 8] |= (uint8_t)(1u << (at - 1) % 8);
            accepted++;
        }
    }
    if (seen) rad_free(env, seen, bytes);
    return accepted;
}
