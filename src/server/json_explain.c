/* json_explain.c - cache_explanation: where the cached tokens of a prompt came from, and
 * why there were no more of them.
 *
 *     {"device":  {"tokens": 32, "end": "evicted", "evicted_tokens": 64,
 *                  "evicted_s_ago": 1.5, "policy": "lru", "cause": "asked"},
 *      "host":    {"tokens": 16, "end": "never_seen", "found": 16, "load": "taken"},
 *      "storage": {"tokens": 16, "end": "missed", "asked": 256, "present": 16},
 *      "session": {"id": "a", "step": "append", "from": "turn-1", "history_tokens": 60, ...},
 *      "history": {"from": "ids", "generated_tokens": 90, "agreed_tokens": 71, ...},
 *      "drafts":  {"steps": 40, "tree": {"proposed": 60, "accepted": 51}, ...}}
 *
 * and "computed_from" the token from which on nothing was looked for, since its logprobs were asked
 * for. Drafts are of the answer: in so many steps it was decoded, and who guessed what of it.
 *
 * It speaks of the request's own namespace, and of no other request. */
#include "server/cached_tokens.h"
#include "server/server_priv.h"

#define WORD(words, i) ((i) < RAD_COUNT(words) ? (words)[i] : "unknown")

static const char *const match_ends[] = {"complete", "page_rounding",    "never_seen",
                                         "evicted",  "other_namespace",  "too_long_name",
                                         "window",   "no_state_snapshot"};
static const char *const causes[] = {"asked", "room"};
static const char *const loads[] = {"taken",      "nothing",         "below_threshold",
                                    "over_quota", "no_device_pages", "no_ticket"};
static const char *const prefetch_ends[] = {
    "not_asked",  "too_short",     "over_budget", "no_ticket",    "under_way", "all",    "missed",
    "too_little", "no_host_pages", "late",        "store_failed", "bad_page",  "revoked"};

/* As --speculative-algorithm has them. */
static const char *const draft_kinds[] = {
    [DRAFT_FORCED] = "forced", [DRAFT_GIVEN] = "given", [DRAFT_PREDICTION] = "prediction",
    [DRAFT_TREE] = "tree",     [DRAFT_NGRAM] = "ngram", [DRAFT_RECENT] = "recent",
    [DRAFT_MODEL] = "model",   [DRAFT_NEXTN] = "nextn"};

/* Where memory is short something is missing, and nothing leaks. */
static void add(json_t *to, const char *name, json_t *value)
{
    (void)json_object_set_new(to, name, value);
}

static json_t *tier(uint64_t tokens, const req_tier_end *end)
{
    json_t *json =
        json_pack("{s:I, s:s}", "tokens", (json_int_t)tokens, "end", WORD(match_ends, end->why));
    if (end->why != RAD_END_EVICTED) return json;
    add(json, "evicted_tokens", json_integer(end->evicted_tokens));
    add(json, "evicted_s_ago", json_real((double)end->evicted_ns_ago * 1e-9));
    add(json, "policy", json_string(end->policy ? end->policy : "unknown"));
    add(json, "cause", json_string(WORD(causes, end->cause)));
    return json;
}

/* NULL: nothing was guessed. */
static json_t *drafts(const draft_counts *d)
{
    if (!draft_counts_sum(d->proposed)) return NULL;
    json_t *json = json_pack("{s:I}", "steps", (json_int_t)d->steps);
    for (int kind = 0; kind < DRAFT_KINDS; kind++)
        if (d->proposed[kind])
            add(json, draft_kinds[kind],
                json_pack("{s:I, s:I}", "proposed", (json_int_t)d->proposed[kind], "accepted",
                          (json_int_t)d->accepted[kind]));
    return json;
}

/* Rounded counts and nothing else: how a match ended says what the next token of somebody's
 * prompt is. */
static json_t *counts_alone(const call_item *item, const server_params *p)
{
    json_t *json = json_object();
    prompt_hits h = cached_shown(p, item->hits);
    add(json, "device", json_pack("{s:I}", "tokens", (json_int_t)(h.cached - h.loaded)));
    if (!item->why.has_tiers) return json;
    add(json, "host", json_pack("{s:I}", "tokens", (json_int_t)(h.loaded - h.fetched)));
    add(json, "storage", json_pack("{s:I}", "tokens", (json_int_t)h.fetched));
    return json;
}

json_t *json_explain_hits(const prompt_hits *hits, const req_why *w)
{
    json_t *json = json_object(), *device = tier(hits->cached - hits->loaded, &w->device);
    if (hits->copied) add(device, "copied", json_integer(hits->copied));
    add(json, "device", device);
    if (w->is_cut) add(json, "computed_from", json_integer(w->cut_from));
    if (!w->has_tiers) return json;
    json_t *host = tier(hits->loaded - hits->fetched, &w->host);
    add(host, "found", json_integer(w->host_tokens));
    add(host, "load", json_string(w->load_failed ? "failed" : WORD(loads, w->load)));
    add(json, "host", host);
    add(json, "storage",
        json_pack("{s:I, s:s, s:I, s:I}", "tokens", (json_int_t)hits->fetched, "end",
                  WORD(prefetch_ends, w->prefetch), "asked", (json_int_t)w->asked_tokens, "present",
                  (json_int_t)w->present_tokens));
    return json;
}

const char *json_eviction_cause(uint32_t cause)
{
    return WORD(causes, cause);
}

json_t *json_cache_explanation(const call_item *item)
{
    const req_why *w = &item->why;
    const server_params *p = &item->call->server->params;
    if (!w->known || !cached_told(p)) return NULL;
    json_t *session = json_session(item->call), *history = json_history(item->call);
    json_t *json = cached_exact(p) ? json_object() : counts_alone(item, p);
    if (session) add(json, "session", session);
    if (history) add(json, "history", history);
    if (!cached_exact(p)) return json;
    json_t *guessed = drafts(&item->drafts);
    if (guessed) add(json, "drafts", guessed);
    json_t *tiers = json_explain_hits(&item->hits, w);
    (void)json_object_update(json, tiers);
    json_decref(tiers);
    return json;
}
