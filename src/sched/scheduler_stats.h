/* scheduler_stats.h - what a scheduler counts, in one struct.
 *
 * The engine hands it on as it is (engine_stats.sched), and one table gives its fields their
 * names in /server_info and /metrics (server/figures.c): a new counter is a field here and a
 * row there. */
#ifndef SCHED_SCHEDULER_STATS_H
#define SCHED_SCHEDULER_STATS_H

#include <radish/hicache.h>
#include <radish/session.h>

/* verify.h */
typedef struct verify_stats {
    uint64_t num_verified;   /* computed again to the end, or to a difference */
    uint64_t num_mismatches; /* that were different */
    uint64_t num_skipped;    /* chosen, but there was no room or the run failed */
    uint64_t num_given_up;   /* times that others needed its pages; it begins anew later */
    uint32_t num_pending;
    uint32_t reserved;
} verify_stats;

/* self_check.h */
typedef struct self_check_stats {
    uint64_t num_checks;     /* rounds to the end */
    uint64_t num_violations; /* that they found: a page each, or a structure */
    uint64_t longest_ns;     /* of a piece so far */
    uint64_t age_ns;         /* since the last round's end; before it, since create */
} self_check_stats;

/* draft_source.h: who guesses the tokens that a request will say. */
typedef enum draft_kind {
    DRAFT_FORCED,     /* text that its rule forces, as it is usually tokenised */
    DRAFT_GIVEN,      /* scheduler_params.draft_given */
    DRAFT_PREDICTION, /* what its client said will come */
    DRAFT_TREE,       /* what others that began alike went on with, in the same namespace */
    DRAFT_NGRAM,      /* what stood behind the same tokens in the request's own text */
    DRAFT_RECENT,     /* and in recent answers of its namespace */
    DRAFT_MODEL,      /* what a small model says */
    DRAFT_NEXTN,      /* what a head of the model itself says (draft_nextn.h) */
    DRAFT_KINDS
} draft_kind;

typedef struct draft_stats {
    uint64_t proposed[DRAFT_KINDS]; /* tokens that were computed before they were said */
    uint64_t accepted[DRAFT_KINDS]; /* of these, such as were said then */
    uint64_t guess_ns;              /* that looking guesses up took, part of schedule_ns; */
    uint64_t prepare_ns;            /* computing them, which is in no other figure (draft_source.h) */
    uint64_t req_steps;             /* of decoding requests, a token each and what was accepted */
} draft_stats;

/* The same of one request. */
typedef struct draft_counts {
    uint32_t steps; /* in which it decoded */
    uint32_t proposed[DRAFT_KINDS];
    uint32_t accepted[DRAFT_KINDS];
} draft_counts;

static inline uint64_t draft_counts_sum(const uint32_t of[DRAFT_KINDS])
{
    uint64_t sum = 0;
    for (int kind = 0; kind < DRAFT_KINDS; kind++)
        sum += of[kind];
    return sum;
}

typedef struct scheduler_stats {
    uint64_t num_finished; /* STOP and LENGTH */
    uint64_t num_aborted;
    uint64_t num_failed;
    uint64_t prompt_tokens; /* of admitted requests, without retractions */
    uint64_t cached_tokens;
    uint64_t prefill_tokens; /* computed */
    uint64_t generated_tokens;
    uint64_t num_retractions;
    uint64_t num_held_back;   /* requests that waited for a sibling's prefix, once a sibling */
    uint64_t tokens_compared; /* by the waiting queue, in its own tree and in the cache */
    uint64_t evicted_tokens;
    uint64_t forward_steps;
    uint64_t forward_ns;
    uint64_t sample_ns;      /* choosing tokens */
    uint64_t masks;          /* of constrained requests, a row of logits each */
    uint64_t mask_ns;        /* of a core that they took, beside forward passes */
    uint64_t mask_wait_ns;   /* that steps waited for them after that; part of sample_ns */
    uint64_t output_ns;      /* handing outputs to on_output */
    uint64_t schedule_ns;    /* the rest of the busy steps: tree, queue, batch */
    uint64_t context_tokens; /* summed over steps and requests: K/V that a step without groups
                              * reads, per layer and kv head */
    uint64_t distinct_context_tokens; /* the same, what the groups share counted once */
    uint64_t kv_read_bytes;     /* K/V that attention read, counted by the runner; 0 of one that
                                 * does not count */
    uint64_t kv_unshared_bytes; /* that it would have read without groups */
    uint64_t group_updates;     /* steps whose groups had to be made anew */
    draft_stats drafts;
    verify_stats verify;
    self_check_stats self_check;
    uint64_t loaded_tokens;  /* of cached_tokens: from the host */
    uint64_t fetched_tokens; /* and of these: from storage */
    uint64_t copied_tokens;  /* of cached_tokens: from pages that begin alike */
    /* Tokens of prompts that were computed although they had been, or were, somewhere: */
    uint64_t evicted_wanted_tokens;      /* the device had evicted them, */
    uint64_t host_evicted_wanted_tokens; /* the host had; */
    uint64_t page_rounded_tokens;        /* cached, but not up to the end of a page; */
    uint64_t other_namespace_tokens;     /* cached for others: with explain_namespaces */
    uint64_t lost_loads;     /* requests that were computed again because a load failed */
    uint64_t kv_errors;      /* calls of the cache that should not fail and did */
    uint32_t num_running;
    uint32_t num_waiting;
    uint64_t max_total_tokens;
    uint64_t available_tokens;
    uint64_t evictable_tokens;
    uint64_t protected_tokens;
    uint64_t held_tokens;         /* all - available - evictable - protected */
    uint64_t window_total_tokens; /* the same five of window memory; all 0: there is none */
    uint64_t window_available_tokens;
    uint64_t window_evictable_tokens;
    uint64_t window_protected_tokens;
    uint64_t window_held_tokens;
    uint64_t
        states_total; /* of recurrent layers, as the five above, in states; 0: there are none */
    uint64_t states_available;
    uint64_t states_evictable;
    uint64_t states_protected;
    uint64_t states_held;
    uint64_t states_saved;   /* snapshots that requests left in the cache */
    uint64_t states_unsaved; /* that prompts were to leave, and no state was to be had */
    uint64_t states_evicted; /* snapshots given up for others */
    uint64_t states_dropped; /* and such that went with the tokens they stood behind */
    rad_namespace_stats namespaces;
    rad_session_stats sessions;
    uint64_t pinned_tokens;
    rad_hicache_stats tiers; /* all 0 without tiers */
} scheduler_stats;

#endif
