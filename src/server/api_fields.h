/* api_fields.h - which fields a request may have, and what becomes of each.
 *
 * One table for all endpoints. What is in it is used, or changes no answer and is accepted, or
 * is refused by name; what is not in it is refused too, since it might change the answer. The
 * error texts come from it, and docs/fields.md is printed from it (a test compares).
 *
 * null is "not given", whatever the field. Nothing in here knows HTTP. Any thread. */
#ifndef SERVER_API_FIELDS_H
#define SERVER_API_FIELDS_H

#include "server/json_in.h"

/* Where a field may stand. */
enum {
    IN_COMPLETIONS = 1 << 0,
    IN_CHAT = 1 << 1,
    IN_GENERATE = 1 << 2,
    IN_SAMPLING = 1 << 3,       /* sampling_params of /generate */
    IN_STREAM_OPTIONS = 1 << 4, /* of both OpenAI endpoints, as the next */
    IN_RESPONSE_FORMAT = 1 << 5,
    IN_MESSAGE = 1 << 6, /* messages[] of chat; what is not listed reaches the template */
    IN_PART = 1 << 7,    /* messages[].content[] */
    IN_STORE = 1 << 8,   /* PUT /hicache/storage-backend */
    IN_TOKENIZE = 1 << 9,
    IN_DETOKENIZE = 1 << 10,
    IN_MESSAGES = 1 << 11, /* /v1/messages and /v1/messages/count_tokens */
    IN_BLOCK = 1 << 12,    /* a content block of theirs, wherever it stands */
    IN_MESSAGES_TOOL = 1 << 13,
    IN_OUTPUT_CONFIG = 1 << 14,
    IN_RESPONSES = 1 << 15,
    IN_RESPONSES_TOOL = 1 << 16,
    IN_RESPONSES_TEXT = 1 << 17, /* text */
    IN_REASONING = 1 << 18,      /* reasoning */
    IN_OLLAMA_CHAT = 1 << 19,
    IN_OLLAMA_GENERATE = 1 << 20,
    IN_OLLAMA_OPTIONS = 1 << 21,
    IN_ABORT = 1 << 22,          /* /abort_request */
    IN_SESSION_PARAMS = 1 << 23, /* session_params */
    IN_OPEN_SESSION = 1 << 24,   /* /open_session */
    IN_CLOSE_SESSION = 1 << 25,  /* /close_session */
    IN_PIN = 1 << 26,            /* /pin_prefix and /unpin_prefix */
    IN_EMBEDDINGS = 1 << 27,     /* /v1/embeddings */
    IN_OLLAMA_EMBED = 1 << 28,
    IN_OLLAMA_EMBEDDINGS = 1 << 29,
    IN_STRUCTURED_OUTPUTS = 1 << 30, /* structured_outputs */
    API_NUM_PLACES = 31
};

typedef enum api_field_use { FIELD_USED, FIELD_HARMLESS, FIELD_REFUSED } api_field_use;

typedef struct api_field {
    const char *name;
    unsigned places;
    api_field_use use;
    const char *neutral; /* refused: the values that ask for nothing and are accepted, as JSON with
                          * spaces between them; NULL: none but null */
    const char *words;   /* used: what it is; harmless: why; refused: what to do instead, or why */
} api_field;

/* Sorted by name; one name may have several rows with different places. */
extern const api_field api_fields[];
extern const size_t api_num_fields;

const char *api_place_name(unsigned place); /* one bit: "/v1/completions" */

/* Every member of `object` (an object, or NULL) may stand in `place`; else a 400 that names it. */
bool api_check_fields(const json_t *object, unsigned place, api_error *err);

/* Refuses what is in no table of ours; `where` says what it is not known in. False. */
bool api_refuse_field(const char *name, const char *where, api_error *err);

/* A stranger's word in out[size], cut short behind a whole character where it is too long. */
const char *api_shown(const char *name, char *out, size_t size);

#endif
