/* hiradix_recheck.c - what was stored once may be gone.
 *
 * A store loses pages without a word: to its budget, a TTL, a FLUSHALL, another process, to
 * quarantine. While the host has its copy nobody fetches such a page, so nobody would notice
 * that a restart, or another server, will miss it. So the mark that a host page is stored has
 * an age, and the next request that matches a page whose mark is old sends a check to the
 * store: a storage backup that asks first what is there, and stores what is not.
 *
 *     stored_at   | doublings, 4 bits | when, in quarters of recheck_ns, 28 bits |
 *
 * While a storage backup of the page is out, `when` lies far in the future: nobody asks about a
 * page that may be on its way there, however long that takes.
 *
 * What keeps this from becoming a storm of writes:
 *   - a page is asked about when a request matches it, and at most once in recheck_ns;
 *   - that time doubles whenever the page had to be stored anew, and halves when it is found,
 *     so a store that keeps nothing is written ever less: a page ten times in a day, not 1440;
 *   - few checks are out at a time, and like all storage backups they come behind fetches;
 *   - a store that fails is a store that did not answer: the marks stay, and are old again
 *     only after recheck_ns. */
#include "hicache/hiradix_impl.h"

#include "base/bits.h"

enum { WHEN_BITS = 28, MOST_ANEW = 15, MOST_CHECKS = 8, QUARTERS = 4 };
static const uint32_t WHEN = ((uint32_t)1 << WHEN_BITS) - 1;

uint32_t hi_recheck_time(const hiradix_cache *c)
{
    uint64_t quarter = RAD_MAX(c->params.recheck_ns / QUARTERS, (uint64_t)1);
    return (uint32_t)(c->base.env.now_ns(c->base.env.user) / quarter) & WHEN;
}

hi_need hi_what_is_needed(const hiradix_cache *c, rad_page page, uint32_t time)
{
    if (!bits_get(c->store.saved, (size_t)page)) return HI_BACKUP_STORAGE;
    uint32_t mark = c->stored_at[page], age = (time - mark) & WHEN;
    if (age > WHEN / 2) return HI_NOTHING; /* a storage backup is out */
    if (age < (uint32_t)QUARTERS << (mark >> WHEN_BITS)) return HI_NOTHING;
    return c->checks < MOST_CHECKS ? HI_CHECK : HI_NOTHING;
}

void hi_mark_stored(hiradix_cache *c, rad_page page, uint32_t time)
{
    bits_set(c->store.saved, (size_t)page);
    c->stored_at[page] = (c->stored_at[page] & ~WHEN) | time;
}

void hi_mark_out(hiradix_cache *c, rad_page page, uint32_t time)
{
    hi_mark_stored(c, page, (time + WHEN / 2) & WHEN);
}

void hi_mark_found(hiradix_cache *c, rad_page page)
{
    uint32_t anew = c->stored_at[page] >> WHEN_BITS;
    if (anew) c->stored_at[page] -= (uint32_t)1 << WHEN_BITS;
    c->stats.rechecked_tokens += c->page_size;
}

void hi_mark_stored_anew(hiradix_cache *c, rad_page page)
{
    uint32_t anew = c->stored_at[page] >> WHEN_BITS;
    if (anew < MOST_ANEW) c->stored_at[page] += (uint32_t)1 << WHEN_BITS;
    c->stats.stored_anew_tokens += c->page_size;
}
