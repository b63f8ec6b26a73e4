/* sessions.h - conversations whose turns go on from token ids.
 *
 * A session is a tree of requests. Each request keeps the ids that it added, its input and then its
 * output, and how much of its parent's history it goes on from:
 *
 *     turn-1  [input output]                 history: all of it
 *       |---- turn-2  [input output]         turn-1's history, then its own
 *       `---- branch  offset 5: [input ...]  the first 5 tokens of turn-1's history, then its own
 *
 * So a turn sends what is new, and what the model wrote before is read as it was written, however a
 * chat template would write it. A streaming session is a chain: a turn goes on from the last one
 * that ended well.
 *
 * What the cache keeps is the engine's business (radish/session.h): each session has one of the
 * engine's, but an ordinary one where the engine's are streaming. A session that was idle for its
 * time ends by itself; past max_bytes of histories the one idle longest does. A session belongs to
 * an owner: nobody else finds it.
 *
 * Any thread; sessions_open and sessions_close wait for the scheduler, the rest does not. */
#ifndef SERVER_SESSIONS_H
#define SERVER_SESSIONS_H

#include "server/api_request.h"

typedef struct sessions sessions;

typedef struct sessions_params {
    engine *engine;        /* not owned */
    uint32_t max_sessions; /* open at one time; 0: none */
    bool streaming;        /* the engine's sessions are streaming ones */
    uint64_t idle_ns;      /* of sessions that name no time of their own */
    uint64_t max_bytes;    /* of all histories */
} sessions_params;

/* RAD_E_NOMEM, RAD_E_IO: no thread could be started. */
rad_status sessions_create(const sessions_params *p, sessions **out);
void sessions_destroy(sessions *s); /* no turn runs any more; NULL is fine */

enum { SESSION_ID_BYTES = API_MAX_KEY_BYTES + 1 };

/* `id` NULL: one is made up; idle_ns 0: the usual time. What it is called is in `name`. */
bool sessions_open(sessions *s, const char *owner, const char *id, bool streaming, uint64_t idle_ns,
                   char name[SESSION_ID_BYTES], api_error *err);

/* Takes effect at the end of what runs. */
bool sessions_close(sessions *s, const char *owner, const char *id, api_error *err);

/* What a turn did, for its explanation. */
typedef enum session_step {
    SESSION_BEGINS,   /* from nothing */
    SESSION_APPENDS,  /* to all of an earlier request */
    SESSION_BRANCHES, /* the same, and another request had gone on from there before */
    SESSION_CUTS,     /* offset: to the front of it */
    SESSION_DROPS,    /* drop_previous_output */
    SESSION_REPLACES  /* what came after it, or all there was */
} session_step;

/* One request of a session, from sessions_begin to session_turn_end. */
typedef struct session_turn {
    sessions *of;
    struct session *session;
    struct session_request *request;
    session_step step;
    uint32_t engine_session; /* for engine_request.session; 0: none */
    uint32_t history_tokens; /* that it goes on from, */
    uint32_t left_tokens;    /* and those of that request behind them, which it does not */
    uint32_t input_tokens;   /* its own */
    uint32_t heard_tokens;   /* of its output */
    bool streaming, broken, ended;
    char id[64], from[64]; /* the session's and the earlier request's names, cut short */
} session_turn;

/* Begins a turn that is called `rid`; the history is appended to *history. NULL and words: no such
 * session or request, one that is still running, a second turn of a streaming session, ... */
session_turn *sessions_begin(sessions *s, const char *owner, const api_session *ask,
                             const char *rid, token_buf *history, api_error *err);

/* Its own input, before it is submitted; false: there is no room for it. Then its name with the
 * engine, by which a later request may end it. */
bool session_turn_input(session_turn *t, const rad_token *ids, uint32_t num_ids, api_error *err);
void session_turn_submitted(session_turn *t, uint64_t engine_id);

/* All output ids so far; those that were heard before are skipped. */
void session_turn_heard(session_turn *t, const rad_token *ids, uint32_t num_ids);

/* `finish` says whether later turns may go on from it. Once; then session_turn_free. */
void session_turn_end(session_turn *t, engine_finish finish);
void session_turn_free(session_turn *t); /* ends it as failed where nothing did; NULL is fine */

const char *session_step_name(session_step step);

/* Test hook: bytes of all histories. */
uint64_t sessions_bytes(sessions *s);

#endif
