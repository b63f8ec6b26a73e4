/* draft_source.c - the table of sources, and those of a few lines. */
#include "sched/draft_source.h"

#include "sched/scheduler_impl.h"

#include <stdio.h>
#include <strings.h>

/* ---- what a rule forces ---- */

static uint32_t propose_forced(scheduler *s, req *r, rad_token *out, uint32_t room, uint32_t *grade)
{
    (void)s, (void)grade;
    if (!r->rule || !r->rule->ops->forced) return 0;
    return r->rule->ops->forced(r->rule, out, room);
}

/* ---- what the scheduler's owner says ---- */

static uint32_t propose_given(scheduler *s, req *r, rad_token *out, uint32_t room, uint32_t *grade)
{
    const draft_guesser *given = &s->drafts.given;
    (void)grade;
    return given->propose ? given->propose(given->user, r, out, room) : 0;
}

/* ---- what the client foretold ---- */

static uint32_t propose_prediction(scheduler *s, req *r, rad_token *out, uint32_t room,
                                   uint32_t *grade)
{
    uint32_t match;
    (void)s;
    if (!r->prediction) return 0;
    const uint32_t n = prediction_propose(r->prediction, &r->draft.prediction,
                                          r->fill_ids + r->num_input, r->num_output, out, room,
                                          &match);
    *grade = draft_grade_of_match(match);
    return n;
}

/* ---- what others went on with ---- */

/* Behind what the request holds of the tree only its own tokens are compared. */
static uint32_t propose_tree(scheduler *s, req *r, rad_token *out, uint32_t room, uint32_t *grade)
{
    const rad_key key = req_key(r, req_num_fill(r));
    const rad_req_kv *kv = &r->kv;
    const uint32_t known = kv->lock.held ? kv->protected_len : 0;
    uint32_t count = 0;
    (void)grade;
    (void)rad_cache_continuation(s->pools.inner_cache, &key, known ? kv->lock.node : (rad_ref){0},
                                 known, out, room, &count);
    return count;
}

/* ---- the request's own text ---- */

static uint32_t propose_ngram(scheduler *s, req *r, rad_token *out, uint32_t room, uint32_t *grade)
{
    drafter *d = &s->drafts;
    uint32_t match, place;
    if (!r->draft.ngrams) r->draft.ngrams = ngram_take(&d->ngrams, &s->env);
    if (!r->draft.ngrams) return 0;
    const uint32_t found =
        ngram_propose(r->draft.ngrams, r->fill_ids, req_num_fill(r), out, room, &match, &place);
    const uint32_t n =
        copy_propose(&r->draft.copy, r->fill_ids, req_num_fill(r), place, out, found, room, &match);
    *grade = draft_grade_of_match(match);
    return n;
}

static void release_ngram(scheduler *s, req *r)
{
    if (r->draft.ngrams) ngram_put_back(&s->drafts.ngrams, r->draft.ngrams);
    r->draft.ngrams = NULL;
    r->draft.copy = (copy_cursor){0};
}

/* ---- recent answers ---- */

static uint32_t propose_recent(scheduler *s, req *r, rad_token *out, uint32_t room, uint32_t *grade)
{
    uint32_t match;
    const uint32_t n = draft_recent_propose(&s->drafts.recent, r->extra_key, r->cache_salt,
                                            r->fill_ids, req_num_fill(r), out, room, &match);
    *grade = draft_grade_of_match(match);
    return n;
}

/* Of a request that begins anew later all comes in at its end. */
static void release_recent(scheduler *s, req *r)
{
    const uint32_t lead = RAD_MIN(r->num_input, (uint32_t)RECENT_LEAD);
    if (!s->drafts.recent.capacity || !r->finish || !r->num_output) return;
    draft_recent_add(&s->drafts.recent, r->extra_key, r->cache_salt,
                     r->fill_ids + r->num_input - lead, r->num_output + lead, lead);
}

/* ---- the table ---- */

static const draft_source sources[DRAFT_KINDS] = {
    [DRAFT_FORCED] = {.name = "forced", .prior = {0.9f}, .propose = propose_forced},
    [DRAFT_GIVEN] = {.name = "given", .prior = {0.6f}, .propose = propose_given},
    [DRAFT_PREDICTION] = {.name = "prediction",
                          .prior = {0.6f, 0.7f, 0.8f, 0.8f, 0.9f, 0.95f},
                          .propose = propose_prediction},
    [DRAFT_TREE] = {.name = "tree", .prior = {0.6f}, .propose = propose_tree},
    [DRAFT_NGRAM] = {.name = "ngram",
                     .prior = {0.1f, 0.2f, 0.4f, 0.6f, 0.8f, 0.9f},
                     .propose = propose_ngram,
                     .release = release_ngram},
    [DRAFT_RECENT] = {.name = "recent",
                      .prior = {0.1f, 0.2f, 0.3f, 0.5f, 0.7f, 0.8f},
                      .propose = propose_recent,
                      .release = release_recent},
    [DRAFT_MODEL] = {.name = "model",
                     .prior = {0.6f},
                     .prepare = draft_model_prepare,
                     .propose = draft_model_propose,
                     .release = draft_model_release},
    [DRAFT_NEXTN] = {.name = "nextn",
                     .prior = {0.6f},
                     .prepare = draft_nextn_prepare,
                     .propose = draft_nextn_propose,
                     .release = draft_nextn_release},
};

const draft_source *draft_source_of(draft_kind kind)
{
    return sources[kind].propose ? &sources[kind] : NULL;
}

/* ---- names ---- */

/* Of the words of --speculative-algorithm the first; SGLang's, too, where they mean the same. */
static bool is_name(const char *text, size_t len, const char *name)
{
    return strlen(name) == len && strncasecmp(text, name, len) == 0;
}

static draft_kind kind_of_name(const char *text, size_t len)
{
    if (is_name(text, len, "standalone")) return DRAFT_MODEL;
    if (is_name(text, len, "eagle") || is_name(text, len, "mtp")) return DRAFT_NEXTN;
    draft_kind kind = DRAFT_PREDICTION;
    while (kind < DRAFT_KINDS && !(sources[kind].propose && is_name(text, len, sources[kind].name)))
        kind++;
    return kind;
}

static void list_names(char *text, size_t size)
{
    size_t len = 0;
    *text = 0;
    for (draft_kind kind = DRAFT_PREDICTION; kind < DRAFT_KINDS; kind++)
        if (sources[kind].propose && len < size)
            len += (size_t)snprintf(text + len, size - len, "%s%s", len ? ", " : "",
                                    sources[kind].name);
}

rad_status draft_sources_parse(const char *text, uint32_t *bits, rad_error *err)
{
    uint32_t on = draft_bit(DRAFT_FORCED);
    *bits = on;
    if (strcasecmp(text, "none") == 0) return RAD_OK;
    for (const char *at = text;; at++) {
        const size_t len = strcspn(at, ",");
        const draft_kind kind = kind_of_name(at, len);
        if (kind == DRAFT_KINDS) {
            char names[96];
            list_names(names, sizeof names);
            return rad_fail(err, RAD_E_INVAL,
                            "speculative_algorithm is none, or of %s those that are wanted, with "
                            "commas between them; '%.60s' is none of them",
                            names, at);
        }
        on |= draft_bit(kind);
        at += len;
        if (!*at) break;
    }
    *bits = on;
    return RAD_OK;
}
