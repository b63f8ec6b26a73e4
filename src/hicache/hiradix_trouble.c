/* hiradix_trouble.c - what a store says when it fails, as far as a person wants to read it.
 *
 *     worker: none -> being put down -> there        owner: there -> logged -> none
 *
 * Workers meet the trouble, but only the owner's thread logs. A store that is down fails with
 * every page: what finds older words there is counted and not told, and the owner tells no more
 * than one of them in half a minute. */
#include "hicache/hiradix_impl.h"

#include <stdio.h>

enum { NONE, BEING_PUT_DOWN, THERE, QUIET_S = 30 };

void hi_note_trouble(hiradix_cache *c, rad_status status, const rad_error *err)
{
    unsigned none = NONE;
    if (status < 0) atomic_fetch_add(&c->storage_errors, 1);
    if ((status >= 0 && status != RAD_FULL) ||
        !atomic_compare_exchange_strong(&c->trouble, &none, BEING_PUT_DOWN))
        return;
    snprintf(c->trouble_text, sizeof c->trouble_text, "%.199s",
             status == RAD_FULL ? "it is full, and nothing in it can be evicted"
             : err->text[0]     ? err->text
                                : "it does not say why");
    atomic_store(&c->trouble, THERE);
}

void hi_tell_trouble(hiradix_cache *c)
{
    if (atomic_load(&c->trouble) != THERE) return;
    uint64_t now = c->base.env.now_ns(c->base.env.user);
    if (now >= c->quiet_until_ns) {
        c->quiet_until_ns = now + (uint64_t)QUIET_S * 1000000000;
        rad_log(&c->base.env, RAD_LOG_WARN,
                "hicache: the store fails, and is a miss where it does: %s", c->trouble_text);
    }
    atomic_store(&c->trouble, NONE);
}
