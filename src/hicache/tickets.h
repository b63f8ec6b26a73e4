/* tickets.h - what transfers hold, and what is done when they are.
 *
 *     take -> ... -> submit -> a worker runs it -> acked: the owner's, who gives it back
 *                                                  or submits it again
 *
 * A ticket is taken before anything else and given back last; between the two it owns its pages,
 * locks and a run in the arena of lists. Some tickets are kept for what cannot wait
 * (controller_kept_tickets): a prompt that waits for its load must not find all of them out for
 * storage backups.
 *
 * A cache with tiers begins its own record (hi_op) with a ticket, as a ticket begins with the
 * controller's transfer, and says in a ticket_ops what is its
 * own: what to do in a worker, what follows, which locks and pages there are. The counters here
 * follow from the tickets that are out; tickets_check counts again.
 *
 * All of it is the owner's thread's but what ops->run does. */
#ifndef HICACHE_TICKETS_H
#define HICACHE_TICKETS_H

#include <radish/page_hash.h>

#include "base/slab.h"
#include "base/span.h"
#include "hicache/cache_controller.h"
#include "hicache/completion.h"
#include "hicache/page_store.h"

enum {
    TICKETS_MOST = 65535, /* an id is half a ticket's number */
    TICKET_LISTS = 2,     /* host and device, of pages and of window pages each */
    TICKET_HASH_UNITS = sizeof(rad_page_hash) / sizeof(rad_page)
};

typedef struct hi_ticket {
    transfer t; /* first */
    uint32_t id;
    uint32_t run; /* in the arena of lists */
    uint32_t count;
    uint32_t begin;         /* the first page's number on its path */
    uint32_t num_windows;   /* pages of which it moves the window side, */
    uint32_t window_begin;  /* the first one's number */
    rad_page *host;         /* [count], in the arena, like the next ones */
    rad_page *device;       /* [count] */
    rad_page *host_windows; /* [num_windows]: window pages */
    rad_page *device_windows;
    rad_page_hash *chain; /* [count]: of fetches and storage backups */
    bool submitted;
    bool acked;       /* taken from the controller */
    bool orphan;      /* a load or fetch whose request has gone */
    bool gets;        /* a fetch that has asked what is there, and has host pages for it */
    bool ended;       /* a fetch that nothing more will come of */
    uint32_t had;     /* of a fetch's pages the first ones, which the host has; host[] has the rest */
    uint32_t reserve; /* pages that a fetch counts for in the budget */
    uint64_t namespace_digest;
    uint64_t start_ns;
    uint64_t deadline_ns;
    struct hi_ticket *older, *newer; /* writes, by their start */
} hi_ticket;

/* How many of host[] are the transfer's own: a fetch has none before it knows how many. */
static inline uint32_t ticket_host_pages(const hi_ticket *k)
{
    return k->t.kind == TRANSFER_WRITE ? k->count : k->gets ? k->count - k->had : 0;
}

/* The same of host_windows[], which are no page's until it has ended well. */
static inline uint32_t ticket_loose_windows(const hi_ticket *k)
{
    return k->t.kind == TRANSFER_WRITE || k->gets ? k->num_windows : 0;
}

typedef struct ticket_ops {
    const char *who; /* in words for people */

    /* In a worker's thread, see transfer_run_fn. */
    rad_status (*run[TRANSFER_KINDS])(void *user, hi_ticket *k, uint32_t worker);

    /* It is done. Writes come in the order in which they began, but what failed or was cancelled
     * need not wait for its turn. */
    void (*done[TRANSFER_KINDS])(void *user, hi_ticket *k);

    /* It is about to be given back: what it has locked is not any more. */
    void (*unlock)(void *user, hi_ticket *k);

    /* It came to nothing: the pages that nobody else has from it are free. */
    void (*free_pages)(void *user, hi_ticket *k);

    /* After what is done, in a poll: more copies begin. */
    void (*demote)(void *user);
} ticket_ops;

typedef struct ticket_params {
    const ticket_ops *ops;
    void *user;
    size_t record_bytes; /* of the owner's record, which begins with an hi_ticket */
    uint32_t max;
    uint32_t load_steps; /* layers of a load */
    uint64_t list_units; /* room for all lists */
    uint32_t copy_threads, store_threads;
    bool deterministic;
} ticket_params;

typedef struct tickets {
    const rad_env *env; /* the owner's */
    ticket_params params;
    cache_controller *controller;
    controller_params workers;
    slab ids;
    char *records; /* [max + 1] */
    span_arena runs;
    rad_page *units; /* the arena: the lists of pages */
    hi_ticket *oldest_write, *newest_write;
    uint32_t writes;        /* in that list */
    uint32_t pending_loads; /* not submitted yet */
    uint32_t orphans;       /* loads that own device pages for nobody */
    uint64_t orphan_pages, orphan_windows;
    uint64_t reserved;     /* pages that fetches count for */
    uint32_t storage_ops;  /* out now */
    bool complained;       /* that no transfer ends */
    uint64_t last_done_ns; /* when one did */
    store_trouble trouble;

    uint64_t looks; /* for what is done */
    bool waited;    /* this one is for a load that has come */
    hi_completion_fn tell;
    void *tell_user;
    hi_completion *script; /* [params.max], NULL: there is none */
    uint32_t script_at, script_end;
    uint32_t script_missed; /* no such transfer was under way */
} tickets;

/* `env` and what params point to stay where they are. Failing leaves nothing behind once
 * tickets_fini has run, which also takes a zeroed one. */
rad_status tickets_init(tickets *ts, const rad_env *env, const ticket_params *params,
                        rad_error *err);
void tickets_fini(tickets *ts);
size_t tickets_bytes(const tickets *ts);

/* A ticket with room for `count` pages and `num_windows` window pages in each of its lists; NULL
 * when there is none, or no list space. */
hi_ticket *tickets_take(tickets *ts, transfer_kind kind, uint32_t count, uint32_t num_windows);
void tickets_submit(tickets *ts, hi_ticket *k);
void tickets_give(tickets *ts, hi_ticket *k); /* unlocks, too; frees no page */
void tickets_drop(tickets *ts, hi_ticket *k); /* frees its pages and gives it back */

/* Its request has gone: what it holds goes back when its worker has let go of it, or now. */
void tickets_orphan(tickets *ts, hi_ticket *k);

/* A ticket's name outside, and what it names; NULL: a stale one. */
uint32_t tickets_number(const tickets *ts, const hi_ticket *k);
hi_ticket *tickets_find(const tickets *ts, uint32_t number);

/* All that are out: begins and ends with NULL. The one it was at may be given back meanwhile. */
hi_ticket *tickets_next(const tickets *ts, const hi_ticket *k);

/* A fetch counts for so many pages from now on. */
void tickets_reserve(tickets *ts, hi_ticket *k, uint32_t pages);

/* The fetch of that number, NULL when it is none or its request has gone; and its request goes. */
hi_ticket *tickets_find_fetch(const tickets *ts, uint32_t number);
void tickets_leave_fetch(tickets *ts, hi_ticket *k);

/* Submits the loads that are not yet. */
void tickets_submit_loads(tickets *ts);

/* Where a load is: RAD_OK, it has arrived; RAD_AGAIN; RAD_E_IO, it failed. One that is gone was
 * forgotten by a reset: it has failed. */
rad_status tickets_load_status(tickets *ts, uint32_t number);

/* Before a request publishes: RAD_OK when its load (0: none) arrived, and then it is over. */
rad_status tickets_settle_load(tickets *ts, uint32_t *load, uint32_t row, rad_error *err);

/* Its request goes. Where the worker may be writing still, that load is returned, for the caller
 * to orphan; else it is over, and *status says how it ended. */
hi_ticket *tickets_leave_load(tickets *ts, uint32_t *load, rad_status *status);

/* Ends the newest write that can be ended and that holds what is wanted (`holds` NULL: any): at
 * once when no worker has begun it, else it is asked to. False: there is none. */
typedef bool (*ticket_holds_fn)(const hi_ticket *k);
bool tickets_give_up_a_write(tickets *ts, ticket_holds_fn holds);

/* Takes what is done, and does what follows from it. poll looks after demotion too, which locks
 * pages on the device: only when the owner asks for it, so that what it sees as evictable
 * between two polls stays so. */
void tickets_take_done(tickets *ts);
void tickets_poll(tickets *ts);

/* Ends all transfers, and drops all tickets without a trace in the trees. Pages of loads whose
 * requests are there still are those requests'. */
void tickets_abandon_all(tickets *ts);

/* As hi_begin_script and its neighbours in completion.h. */
rad_status tickets_begin_script(tickets *ts);
rad_status tickets_add_to_script(tickets *ts, const hi_completion *done);
uint32_t tickets_end_of_call(tickets *ts);

/* As rad_hicache_wait and rad_hicache_drain, hi_pump and hi_describe. */
rad_status tickets_wait(tickets *ts, uint64_t timeout_ns);
rad_status tickets_drain(tickets *ts, uint64_t timeout_ns);
rad_status tickets_pump(tickets *ts, uint64_t pick);
void tickets_describe(const tickets *ts, char *text, size_t bytes);

/* How many of each kind are queued and running now. */
void tickets_count_queues(const tickets *ts, uint32_t queued[TRANSFER_KINDS],
                          uint32_t running[TRANSFER_KINDS]);

/* The counters against the tickets that are out, and the arena; RAD_E_CORRUPT in words. */
rad_status tickets_check(const tickets *ts, rad_error *err);

#endif
