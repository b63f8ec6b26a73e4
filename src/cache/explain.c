/* explain.c - where a match ends, and why: a walk, and a look into the eviction log. */
#include <radish/explain.h>

#include "cache/radix_cache.h"
#include "cache/radix_host.h"
#include "cache/radix_journal.h"
#include "cache/radix_key.h"
#include "cache/radix_path.h"
#include "cache/radix_state.h"

enum { MOST_NAMESPACES = 256 };

static void explain_path(const radix_cache *c, const radix_pos *pos, rad_explanation *e)
{
    const radix_tree *t = &c->tree;
    radix_path p = radix_path_to(t, pos);
    for (; radix_path_is(t, &p); radix_path_up(t, &p))
        e->num_nodes++;
    uint32_t at = RAD_MIN(e->num_nodes, (uint32_t)RAD_EXPLAIN_NODES);
    for (p = radix_path_to(t, pos); at; radix_path_up(t, &p))
        e->nodes[--at] = (rad_explained_node){.node = radix_cache_ref(c, p.node),
                                              .tokens = (p.end - p.begin) * t->limits.page_size};
}

/* Looks for the pages behind the match among the evicted ones. */
static void explain_eviction(const radix_cache *c, const rad_key *key, bool host, uint32_t root,
                             const radix_pos *pos, rad_explanation *e)
{
    const radix_tree *t = &c->tree;
    const radix_journal *j = t->journal;
    uint32_t ps = t->limits.page_size, num_pages = radix_cache_pages(c, key);
    const rad_token *tokens = radix_cache_tokens(c, key);
    if (!j || !j->fingerprints) return;
    const eviction_log *log = host ? &j->host_evictions : &j->evictions;
    uint64_t chain;
    if (pos->pages) {
        const radix_node *n = &t->nodes[pos->child ? pos->child : pos->node];
        chain = j->fingerprints[n->at + (pos->child ? pos->part : n->pages) - 1];
    } else {
        journal_seed seed = root ? radix_journal_seed_of(j, t, root)
                                 : radix_journal_seed(j, key->extra_key, key->cache_salt);
        chain = radix_journal_start(t, &seed, key->tokens[0]);
    }
    for (uint32_t page = pos->pages; page < num_pages; page++) {
        chain = radix_journal_fingerprint(chain, tokens + (size_t)page * ps, ps);
        const eviction_record *r = eviction_log_find(log, chain);
        if (!r) return;
        if (page == pos->pages) {
            e->why = RAD_END_EVICTED;
            e->eviction = (rad_eviction){.operation = r->operation,
                                         .time_ns = r->time_ns,
                                         .policy = host ? t->host.policy->name : t->policy->name,
                                         .cause = r->cause};
        }
        e->evicted_tokens += ps;
    }
}

static void explain_namespaces(const radix_cache *c, const rad_key *key, uint32_t own,
                               const radix_pos *pos, rad_explanation *e)
{
    const radix_tree *t = &c->tree;
    uint32_t num_pages = radix_cache_pages(c, key), longest = pos->pages;
    if (!t->journal || !t->journal->explains_namespaces) return;
    uint32_t left = MOST_NAMESPACES; /* more would hold up those who wait */
    for (uint32_t ns = t->names.newest; ns && left; ns = t->names.entries[ns].older, left--) {
        uint32_t root = t->names.entries[ns].root;
        if (root == own) continue;
        radix_pos other = radix_walk(t, root, radix_cache_tokens(c, key), num_pages);
        radix_to_tier(t, &other, RADIX_DEVICE);
        longest = RAD_MAX(longest, other.pages);
    }
    if (longest == pos->pages) return;
    e->other_namespace_tokens = longest * t->limits.page_size;
    if (e->why == RAD_END_NEVER_SEEN) e->why = RAD_END_OTHER_NAMESPACE;
}

rad_status rad_cache_explain(const rad_cache *cache, const rad_key *key,
                             rad_explanation *explanation)
{
    if (!cache || !explanation || !key || (!key->tokens && key->num_tokens) ||
        key->num_tokens > INT32_MAX)
        return RAD_E_INVAL;
    *explanation = (rad_explanation){0};
    const radix_cache *c = radix_cache_of(cache);
    return c ? radix_cache_explain(c, key, false, explanation) : RAD_E_UNSUPPORTED;
}

/* Whether a walk that is on the tier ends where there is no snapshot, although there should be. */
static bool lacks_state(const radix_tree *t, radix_tier tier, const radix_pos *pos)
{
    if (!t->states[RADIX_DEVICE]) return false;
    return pos->child || !t->states[tier] || !radix_state_of(t, tier, pos->node);
}

/* What the host has of a walk, as far as a request can load it that goes on behind page `from`. */
static void explain_load(const radix_tree *t, radix_pos *pos, uint32_t from)
{
    radix_pos end = *pos;
    radix_host_end(t, &end, from);
    if (end.pages > from) {
        *pos = end;
        return;
    }
    while (pos->pages > from) { /* to the end of a node, since it is shown by its nodes */
        pos->pages -= pos->child ? pos->part : t->nodes[pos->node].pages;
        if (pos->child)
            pos->child = pos->part = 0;
        else
            pos->node = t->nodes[pos->node].parent;
    }
}

rad_status radix_cache_explain(const radix_cache *c, const rad_key *key, bool host,
                               rad_explanation *e)
{
    *e = (rad_explanation){0};
    if (!namespace_fits(key->extra_key, key->cache_salt)) {
        e->why = RAD_END_TOO_LONG_NAME;
        return RAD_OK;
    }
    const radix_tree *t = &c->tree;
    uint32_t ps = c->base.page_size, num_pages = radix_cache_pages(c, key), root = 0;
    const rad_token *tokens = num_pages ? radix_cache_tokens(c, key) : NULL;
    uint32_t ns = namespace_find(&t->names, key->extra_key, key->cache_salt);
    radix_pos pos = {0};
    uint32_t walked = 0;
    bool no_state = false;
    if (ns) {
        root = t->names.entries[ns].root;
        pos = radix_walk(t, root, tokens, num_pages);
        radix_pos device = pos;
        radix_to_tier(t, &device, RADIX_DEVICE);
        uint32_t on_device = device.pages;
        if (!host) no_state = lacks_state(t, RADIX_DEVICE, &device);
        radix_usable(t, &device);
        if (host) {
            radix_to_tier(t, &pos, RADIX_HOST);
            walked = pos.pages;
            no_state = lacks_state(t, RADIX_HOST, &pos);
            if (t->num_components && walked > device.pages) explain_load(t, &pos, device.pages);
        } else {
            pos = device;
            walked = on_device;
        }
        explain_path(c, &pos, e);
    }
    e->prefix_tokens = pos.pages * ps;
    uint32_t rest = key_length(key->num_tokens, c->bigram) - e->prefix_tokens;
    if (pos.pages == num_pages) {
        e->why = rest ? RAD_END_PAGE_ROUNDING : RAD_END_COMPLETE;
        e->rounded_tokens = rest;
        return RAD_OK;
    }
    if (pos.pages < walked) {
        e->why = no_state ? RAD_END_STATE : RAD_END_WINDOW;
        return RAD_OK;
    }
    e->why = RAD_END_NEVER_SEEN;
    uint32_t owner;
    radix_tier tier = host ? RADIX_HOST : RADIX_DEVICE;
    tokens += e->prefix_tokens;
    if (root) e->rounded_tokens = radix_front_of_page(t, tier, false, &pos, tokens, rest, &owner);
    explain_eviction(c, key, host, root, &pos, e);
    if (!host) explain_namespaces(c, key, root, &pos, e);
    return RAD_OK;
}
