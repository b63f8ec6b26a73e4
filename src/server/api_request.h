/* api_request.h - a request body becomes engine requests.
 *
 * All dialects (OpenAI's completions and chat, SGLang's /generate, ...) end in the same
 * thing: one engine_request per prompt and a few words on how to answer. Nothing in here
 * knows HTTP, so a fuzzer can call it. */
#ifndef SERVER_API_REQUEST_H
#define SERVER_API_REQUEST_H

#include "engine/engine.h"
#include "server/json_in.h"
#include "text/tool_call.h"

enum {
    API_MAX_PROMPTS = 1024,    /* of one HTTP request */
    API_MAX_STOP = 64,         /* stop strings */
    API_MAX_STOP_BYTES = 1024, /* of each */
    API_MAX_STOP_TOKENS = 256,
    API_MAX_CHOICES = 128, /* n */
    API_MAX_TOP_LOGPROBS = 20,
    API_MAX_KEY_BYTES = 1024 /* extra_key, cache_salt, rid */
};

typedef enum api_kind {
    API_COMPLETIONS,
    API_CHAT,
    API_GENERATE,
    API_TOKENIZE,
    API_DETOKENIZE,
    API_MESSAGES,
    API_COUNT_TOKENS,
    API_RESPONSES,
    API_OLLAMA_CHAT,
    API_OLLAMA_GENERATE,
    API_PIN,
    API_EMBEDDINGS,
    API_OLLAMA_EMBED,
    API_OLLAMA_EMBEDDINGS,
    API_NUM_KINDS
} api_kind;

/* How the answers to a conversation are read: see conversation.h. */
typedef struct api_output {
    bool parts; /* as reasoning, content and calls; else as text */
    bool calls, reasoning;
    bool whole_calls, one_call;
    tool_types *types; /* of the tools, or NULL */
    size_t types_bytes;
} api_output;

/* Which calls an answer may have, or must. */
typedef struct api_called {
    json_t *tools; /* all that can be called, OpenAI's list; NULL: none */
    bool required; /* tool_choice: a call must come, */
    const char *only; /* of this function; NULL: of any. The body's. */
    bool strict;   /* a tool wants its arguments to follow its schema */
} api_called;

/* What a body may refer to beside itself. */
typedef struct api_context {
    memory_budget *budget;        /* NULL: no limit */
    struct response_store *store; /* of earlier answers; NULL: there are none */
    const char *owner;            /* whose request it is; NULL: nobody's */
    const char *space;            /* what keeps its prompts apart from others'; NULL: nothing */
    uint64_t now_ns;
} api_context;

/* session_params: which turn of which session it is, see sessions.h. Strings of the body's. */
typedef struct api_session {
    const char *id;  /* NULL: of none */
    const char *rid; /* the request that it goes on from; NULL: none */
    int64_t offset;
    bool replace, drop_previous_output;
} api_session;

/* Where the last cache_control stands: behind so many tools and messages, and of the last one
 * behind so many bytes of its words. */
typedef struct api_mark {
    bool inside; /* something comes after it; else all of the prompt is to be kept */
    uint32_t tools, messages;
    uint64_t bytes;
} api_mark;

/* Of a request of /v1/responses until its answer is out: malloc'ed. */
typedef struct api_kept {
    memory_budget *budget;
    uint64_t bytes;   /* of it */
    bool store;       /* the answer may be asked for, and gone on from */
    char *echo;       /* an object: what the answer says again of the request */
    char *items;      /* {"items": [...]}: the conversation so far */
    char *tool_names; /* of tools other than plain functions; see tool_names.h */
    size_t tool_names_len, tool_names_room;
    size_t echo_len, items_len;
    rad_token *ids;   /* its prompt's, then as many of its rendering, where that is another; NULL: */
    uint32_t num_ids; /* not known */
    uint32_t num_rendered;
} api_kept;

/* What previous_response_id names, as it was generated, and what became of it (response_ids.c). */
typedef struct api_history {
    rad_token *ids; /* of its prompt, and what the model wrote, in the request's memory; NULL: not
                     * known */
    uint32_t num_ids, num_prompt, num_reasoning;
    const rad_token *rendering; /* of that prompt; mostly the same ids */
    uint32_t num_rendering;
    uint32_t num_messages; /* of the conversation, before what is new; 0: nobody can tell */
    bool told;             /* the rest is known: */
    const char *why_not;   /* the prompt is a rendering; NULL: it goes on from the ids */
    uint32_t agreed;       /* tokens that the rendering begins with as well, */
    rad_token generated, rendered; /* and the first that differs */
} api_history;

typedef struct api_request {
    api_kind kind;
    bool stream;
    bool include_usage;    /* a usage chunk ends the stream */
    bool return_token_ids; /* choices[].token_ids */
    bool batch;            /* prompts came as a list, or n > 1: /generate answers with one */
    bool logprobs;         /* of every item, with so many alternatives, and these ids: */
    uint32_t num_top_logprobs;
    uint32_t num_id_logprobs;
    bool prompt_logprobs; /* of the prompt, from this token on: */
    uint32_t prompt_logprobs_from;
    bool echo;             /* /v1/completions: the prompt comes first */
    bool vllm_prompt;      /* the prompt's logprobs are told as vLLM does, with so many: */
    uint32_t num_vllm_top; /* alternatives, of num_top_logprobs; the answer has */
    uint32_t num_told_top; /* as many of these */
    bool embed;            /* embeddings are wanted, */
    bool base64;           /* spelt so, */
    uint32_t dimensions;   /* of so many numbers; 0: all */
    bool text_in_logprobs; /* /generate, /tokenize: token texts beside the ids */
    bool predicts;         /* it foretells the answer, and is told how right that was */
    uint64_t pin_ns;       /* it asks that its prompt be kept for so long, as far as pins go */
    api_mark mark;         /* up to there, and that is */
    uint32_t pin_tokens;   /* of the prompt, when it has been found; 0: all */
    uint32_t n;            /* choices per prompt; they lie side by side in items */
    uint32_t best;         /* so many of them are told: those that the model found likeliest */
    uint32_t num_items;    /* prompts * n; 0: there is nothing to ask the engine for (Ollama) */
    engine_request *items; /* on_event and user are the caller's to set */
    const char *rid;       /* /generate: the client's name for it, or NULL */
    api_session session;
    const char *model; /* which it asked for, not checked here; NULL: it named none */

    api_output output;
    api_called called;

    api_kept kept;
    api_history history;
    const api_context *context; /* while it is parsed */
    json_room room;             /* what the next three take of the budget */
    json_t *root;               /* strings of the items live here, */
    json_t *messages;           /* here where a dialect made them, */
    void *blocks;               /* and arrays here */
} api_request;

/* True and *out to be given back with api_request_fini; false and an error (400, 413 or 503
 * when the budget or the memory has no room for it), *out needing nothing. Whatever the bytes are.
 * `budget` (NULL: no limit) is asked before anything is built, and must outlive *out. */
bool api_request_parse(api_kind kind, const char *body, size_t len, memory_budget *budget,
                       api_request *out, api_error *err);
/* The same where there is more than a budget; *at must outlive the call, its members *out. */
bool api_request_parse_at(api_kind kind, const char *body, size_t len, const api_context *at,
                          api_request *out, api_error *err);
void api_request_fini(api_request *r);

/* Frees the JSON and what points into it (items, rid, model). How to answer is not touched: other
 * threads may be reading it. */
void api_request_forget(api_request *r);

/* ---- for the dialects ---- */

/* The dialects: fill `r` from r->root. */
bool completions_parse(api_request *r, api_error *err);
bool chat_parse(api_request *r, api_error *err);
bool generate_parse(api_request *r, api_error *err);
bool tokenize_parse(api_request *r, api_error *err);
bool detokenize_parse(api_request *r, api_error *err);
bool messages_parse(api_request *r, api_error *err);
bool count_tokens_parse(api_request *r, api_error *err);
bool responses_parse(api_request *r, api_error *err);
bool ollama_chat_parse(api_request *r, api_error *err);
bool ollama_generate_parse(api_request *r, api_error *err);
bool pin_parse(api_request *r, api_error *err);
bool embeddings_parse(api_request *r, api_error *err);
bool ollama_embed_parse(api_request *r, api_error *err);
bool ollama_embeddings_parse(api_request *r, api_error *err);

/* Zeroed memory that lives as long as r; NULL and a 503 in err when there is none. */
void *api_request_alloc(api_request *r, size_t count, size_t size, api_error *err);

/* Makes r->items from `value`: a text, a list of ids, a list of texts or of lists of ids.
 * ids_ok / text_ok say what `key` may hold. */
bool api_parse_prompts(api_request *r, const json_t *value, const char *key, bool text_ok,
                       bool ids_ok, api_error *err);

/* What response_ids_write wrote, into r->history. */
bool response_ids_read(api_request *r, const char *blob, size_t len, api_error *err);

/* session_params, where the place has it. */
bool api_parse_session(api_request *r, api_error *err);

/* r->items from `key`, each for its embedding; dimensions, and what api_parse_routing reads. */
bool api_parse_embeddings(api_request *r, const char *key, bool ids_ok, api_error *err);

/* temperature, top_p, penalties, stop, n, ... */
bool api_parse_sampling(api_request *r, const json_t *object, engine_request *item, api_error *err);

/* One limit for both spellings of the number of alternatives. */
bool api_parse_top_logprobs(api_request *r, const json_t *object, const char *key, api_error *err);

/* prompt_logprobs, vLLM's, of both OpenAI endpoints; after the others. */
bool api_parse_vllm_logprobs(api_request *r, api_error *err);

/* Of choices of a prompt that come in one answer the first asks for the prompt's logprobs, and
 * its are told with all. */
static inline bool api_shares_prompt(const api_request *r)
{
    return !r->stream && r->n > 1;
}

/* A string of at most API_MAX_KEY_BYTES, as json_in_string. */
bool api_parse_key(const json_t *object, const char *key, const char **out, api_error *err);

/* priority, extra_key, cache_salt of `object` into all items. */
bool api_parse_routing(api_request *r, const json_t *object, api_error *err);

/* prompt_cache_key and prompt_cache_retention into pin_ns. */
bool api_parse_pin(api_request *r, api_error *err);

/* All items get what the first one has, but for the prompt: the very same stop strings and biases,
 * so that the engine copies them once. */
void api_share_settings(api_request *r);

/* OpenAI's common part: sampling, routing, stream, stream_options, n, ... */
bool api_parse_openai(api_request *r, api_error *err);

#endif
