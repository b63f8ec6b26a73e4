/* record_format.h - RADREC2: what a server's scheduler asked of its cache, in order, without text.
 *
 *     "RADREC2\n"                                          8 bytes
 *     frame   u32 bytes of payload | u32 XXH32 of it (seed 0) |
 *             u32 XXH32 of these 8 bytes (seed 0) | payload                    again and again
 *     payload 'H' | lines key=value           the first frame: how the cache was made (record_head)
 *             'O' | microseconds since the start | operations
 *             'E' | why: 0 stopped, 1 the limit was reached                    the last frame
 *     operation   kind, 1 byte | microseconds since the one before | its fields | its pages
 *
 * Numbers are varints (7 bits a byte, low first, 10 bytes at most), signed ones zigzag; fixed ones
 * are little endian. A frame is written whole: a server that is killed leaves a file that can be
 * read up to its last whole frame. The head's own checksum is what tells such a file from a damaged
 * one: without it a length with a wrong bit reads as a frame that was cut. So a file that ends
 * before a frame, within its head, or within a payload whose head is right was cut short, and
 * everything else that is not as it was written is damage.
 *
 * RADREC1 had no checksum of the head; it is refused.
 *
 * No token is in it. A prompt is a chain of pages: page i is named by a salted hash over the page
 * before it and its own tokens (record_hash.h), and a page that was named once is a number from
 * then on. `pages` of an operation are therefore the number of the last page that the file knows
 * (0: none), how many follow it, and 8 bytes of hash each: these get the next numbers, from 1 on.
 * Names of namespaces (extra_key, cache_salt) are salted hashes as well. The salt is not kept.
 *
 * Readers skip nothing: a kind that they do not know is a newer version's, and an error. */
#ifndef TRACE_RECORD_FORMAT_H
#define TRACE_RECORD_FORMAT_H

#include "base/base.h"

#define RECORD_MAGIC "RADREC2\n"

enum {
    RECORD_MAGIC_BYTES = 8,
    RECORD_FORMAT_DIGIT = 6, /* of the magic: records of any version have the bytes around it */
    RECORD_FRAME_HEAD = 12,
    RECORD_MOST_FRAME = 64 << 20, /* bytes of payload */
    RECORD_MOST_FIELDS = 8,
    RECORD_MOST_TOKENS = 1 << 28,                       /* of a request */
    RECORD_OP_BYTES = 1 + 10 * (RECORD_MOST_FIELDS + 3) /* without hashes, at most */
};

typedef enum record_kind {
    RECORD_NAMESPACE = 1, /* hash: namespaces are numbered from 1 on; 0 is the one without names */
    RECORD_ARRIVE,        /* request, namespace, session, priority, prompt tokens; pages */
    RECORD_GROW,          /* request, tokens that are known now; pages behind the last one */
    RECORD_MATCH,         /* request, tokens asked for, tokens found; then the match is locked */
    RECORD_BEGIN,         /* request, status: the turn of a session begins (rad_session_begin) */
    RECORD_DROP,          /* request: the lock goes back, nothing came of it */
    RECORD_ADMIT,      /* request, cached, loaded, fetched and copied tokens; for the first time */
    RECORD_UNFINISHED, /* request, committed tokens, chunked, status, protected tokens after it;
                        * how many tokens its two states have seen */
    RECORD_FINISHED,   /* request, committed tokens, is_insert, status; the same of its states */
    RECORD_WINDOW,     /* request, committed tokens, up to where, status: its window side goes */
    RECORD_EVICT_WINDOW, /* tokens asked for, tokens evicted */
    RECORD_PUT_STATE,    /* request, how deep, status: a snapshot is hung in */
    RECORD_EVICT_STATE,  /* snapshots asked for, snapshots evicted */
    RECORD_EVICT,        /* tokens asked for, tokens evicted */
    RECORD_RELEASE_IDLE, /* sessions asked for, sessions released */
    RECORD_OPEN,         /* session, status */
    RECORD_CLOSE,        /* session, status */
    RECORD_PIN,          /* request, tokens, microseconds */
    RECORD_RETAIN,       /* request, tokens, priority, microseconds */
    RECORD_RESET,        /* everything is forgotten */
    RECORD_LEAVE,    /* request, how it ended (1 stop, 2 length, 3 abort, 4 error), tokens said */
    RECORD_COUNTERS, /* prompt, cached, evicted, inserted tokens; nodes, splits, merges */
    RECORD_PRICES,   /* picoseconds: of a prompt token, of a (query, key) pair, of a decoding
                      * request's step; and what a step takes at least */
    RECORD_LOST,     /* operations that were not written down before this one */
    RECORD_INEXACT,  /* why (record_inexact): from here on no replay can be exact */
    RECORD_POLL, /* free pages of the device: what transfers have brought is taken. This and what
                  * follows: with a host tier */
    RECORD_COMPLETED, /* ticket, look, status: a transfer that the next operation finds done */
    RECORD_LOAD,   /* request, tokens asked for, tokens at most, free pages, tokens that come from
                    * the host, why not more (rad_load_refusal) */
    RECORD_READY,  /* loads begin */
    RECORD_LOADED, /* request, status of its load */
    RECORD_CLEAR,  /* tiers (RAD_TIER_...), status */
    RECORD_TIER_COUNTERS, /* tokens written to the host, loaded from it, evicted there, not written,
                           * cached there now; loads and writes that failed; transfers now */
    RECORD_PIN_KEY, /* tokens, namespace, microseconds: of a prefix that no request of its time had;
                     * pages */
    RECORD_KINDS
} record_kind;

typedef enum record_inexact {
    RECORD_INEXACT_NONE = 0,
    RECORD_INEXACT_TIERS, /* what a store has is not known, nor windows and states on the host */
    RECORD_INEXACT_KEPT,  /* on two tiers pins and retention are renewed at moments within a call */
    RECORD_INEXACT_CHUNK, /* there is no cache */
    RECORD_INEXACT_TURNS, /* streaming sessions compare tokens within a page, and keep states */
    RECORD_INEXACT_REASONS
} record_inexact;

typedef enum record_end {
    RECORD_STOPPED = 0, /* the server ended in order */
    RECORD_LIMIT = 1,   /* --record-limit; what came later is not in it */
    RECORD_CUT = 2      /* no end: it was killed, or is running still */
} record_end;

typedef struct record_op {
    record_kind kind;
    uint32_t page;      /* of ops with pages: the last one's number, 0: none */
    uint32_t num_pages; /* and how many that makes, from the first token on */
    uint64_t time_us;   /* since the start */
    uint64_t field[RECORD_MOST_FIELDS];
} record_op;

/* How many fields an operation of this kind has, and whether pages follow. */
typedef struct record_shape {
    const char *name;
    uint8_t fields;
    bool pages;
} record_shape;

/* NULL: there is no such kind. */
const record_shape *record_shape_of(unsigned kind);
const char *record_inexact_name(unsigned why);

/* How the cache was made. Lines of the file's first frame, of which unknown ones are passed over.
 */
typedef struct record_head {
    uint64_t started_s; /* Unix time */
    uint64_t max_total_tokens;
    uint64_t max_pinned_tokens;
    uint64_t host_tokens; /* of the tier below; 0: none */
    uint64_t write_policy, load_back_threshold, max_transfers, demote_tokens, prefetch_tokens,
        host_max_pinned_tokens; /* of which: as in rad_hicache_params */
    uint64_t host_policy, host_protected_threshold, host_cost_half_life_percent,
        host_cost_attention_tokens;
    uint64_t page_size;
    uint64_t chunk; /* 1: nothing is cached */
    uint64_t policy;
    uint64_t protected_threshold, cost_half_life_percent, cost_attention_tokens;
    uint64_t max_namespaces;
    uint64_t max_sessions, streaming_sessions;
    uint64_t retention;
    uint64_t max_rows;
    uint64_t row_tokens;    /* the context */
    uint64_t window;        /* tokens that window memory keeps of a request; 0: there is none, */
    uint64_t window_tokens; /* and of how many it is */
    uint64_t states;        /* of recurrent layers */
} record_head;

typedef struct record_head_line {
    const char *key;
    size_t at;
    uint64_t least, most;
} record_head_line;

/* The table; *count lines. */
const record_head_line *record_head_lines(size_t *count);

static inline uint64_t record_zigzag(int64_t n)
{
    return ((uint64_t)n << 1) ^ (uint64_t)(n >> 63);
}

static inline int64_t record_unzigzag(uint64_t n)
{
    return (int64_t)(n >> 1) ^ -(int64_t)(n & 1);
}

/* The number of so many bytes (at most 8), low first. */
static inline uint64_t record_fixed_at(const uint8_t *p, size_t bytes)
{
    uint64_t n = 0;
    for (size_t i = 0; i < bytes; i++)
        n |= (uint64_t)p[i] << (8 * i);
    return n;
}

#endif
