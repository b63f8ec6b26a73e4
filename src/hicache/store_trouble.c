/* store_trouble.c - see the header. */
#include "hicache/store_trouble.h"

#include <stdio.h>

enum { NONE, BEING_PUT_DOWN, THERE, QUIET_S = 30 };

void store_trouble_note(store_trouble *t, rad_status status, const rad_error *err)
{
    unsigned none = NONE;
    if (status < 0) atomic_fetch_add(&t->failed_calls, 1);
    if (status >= 0 && status != RAD_FULL) return;
    if (!atomic_compare_exchange_strong(&t->state, &none, BEING_PUT_DOWN)) return;
    snprintf(t->text, sizeof t->text, "%.199s",
             status == RAD_FULL ? "it is full, and nothing in it can be evicted"
             : err->text[0]     ? err->text
                                : "it does not say why");
    atomic_store(&t->state, THERE);
}

void store_trouble_tell(store_trouble *t, const rad_env *env, const char *who)
{
    if (atomic_load(&t->state) != THERE) return;
    uint64_t now = env->now_ns(env->user);
    if (now >= t->quiet_until_ns) {
        t->quiet_until_ns = now + (uint64_t)QUIET_S * 1000000000;
        rad_log(env, RAD_LOG_WARN, "%s: the store fails, and is a miss where it does: %s", who,
                t->text);
    }
    atomic_store(&t->state, NONE);
}
