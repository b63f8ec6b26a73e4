/* replay_private.h - what the files of a record's replay share.
 *
 * replay_record.c has the requests and what they ask of the cache, replay_tiers.c the host tier. */
#ifndef REPLAY_REPLAY_PRIVATE_H
#define REPLAY_REPLAY_PRIVATE_H

#include "replay/record_cache.h"
#include "replay/replay_record.h"

enum { BUCKETS = 4096 };

typedef struct live { /* a request between arrival and end */
    struct live *next;
    uint64_t id;
    rad_token *tokens;
    uint64_t cap;
    uint32_t num_tokens; /* whole pages that are known, and up to the end of the prompt */
    uint32_t page;       /* its last known one, */
    uint32_t num_pages;  /* and how many that makes */
    uint32_t number;     /* of its namespace */
    uint32_t session;
    uint32_t num_prompt;
    int32_t priority;
    rad_req_kv kv;
} live;

typedef struct replay {
    rad_env env;
    record_reader *reader;
    replay_result *result;
    record_cache c;  /* like the server's */
    rad_page *pages; /* scratch: of a request, up to c.room */
    uint32_t page_size;
    uint32_t num_live;
    live *buckets[BUCKETS];
    char name[16]; /* of a namespace */
} replay;

/* An answer is not the recorded one. The first is told in words. */
void replay_differ(replay *p, const record_op *op, const char *fmt, ...) RAD_PRINTF(3, 4);
void replay_compare(replay *p, const record_op *op, const char *what, uint64_t ours,
                    uint64_t recorded);
void replay_compare_status(replay *p, const record_op *op, rad_status ours, uint64_t recorded);

/* ---- replay_tiers.c ---- */

/* An operation of the host tier that is no request's. False: it is none. */
bool replay_of_tiers(replay *p, const record_op *op);
/* What is counted of it so far. */
void replay_count_tiers(replay *p);
void replay_load_back(replay *p, live *q, const record_op *op, const rad_key *key);

/* The operation found done what the record said that it finds. */
void replay_end_of_call(replay *p, const record_op *op);

#endif
