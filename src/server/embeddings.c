/* embeddings.c - POST /v1/embeddings, and Ollama's /api/embed and /api/embeddings.
 *
 * A text's embedding is the hidden state of its last token, or the mean of all (engine.h), as a
 * vector of length 1. With `dimensions` it is cut before it is scaled, which models that were
 * trained for it allow. Prompts are computed and cached as any others; a mean finds none of its
 * states there, so it goes through the whole text. */
#include "server/api_fields.h"
#include "server/server_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

bool api_parse_embeddings(api_request *r, const char *key, bool ids_ok, api_error *err)
{
    int64_t dimensions = 0;
    if (!json_in_int(r->root, "dimensions", 1, INT32_MAX, &dimensions, err) ||
        !api_parse_prompts(r, json_in_get(r->root, key), key, true, ids_ok, err))
        return false;
    r->embed = true;
    r->dimensions = (uint32_t)dimensions;
    for (uint32_t i = 0; i < r->num_items; i++) {
        r->items[i].embed = true;
        r->items[i].sampling.top_p = 1; /* off; nothing is sampled */
    }
    return api_parse_routing(r, r->root, err);
}

bool embeddings_parse(api_request *r, api_error *err)
{
    const char *format = "float";
    if (!json_in_get(r->root, "input")) return api_fail(err, 400, "input", "'input' is missing");
    if (!json_in_string(r->root, "encoding_format", &format, err)) return false;
    r->base64 = strcmp(format, "base64") == 0;
    if (!r->base64 && strcmp(format, "float") != 0)
        return api_fail(err, 400, "encoding_format",
                        "'encoding_format' must be \"float\" or \"base64\"");
    return api_parse_embeddings(r, "input", true, err);
}

bool embeddings_check(call *c)
{
    if (!c->request.embed || !c->request.dimensions) return true;
    const uint32_t most = engine_get_info(c->server->engine)->embedding_length;
    if (c->request.dimensions <= most) return true;
    return api_fail(&c->error, 400, "dimensions",
                    "'dimensions' is %u: this model's embeddings have %u", c->request.dimensions,
                    most);
}

/* ---- the vector ---- */

typedef struct vector {
    const double *hidden;
    uint32_t count;
    double length;
} vector;

static vector vector_of(const call_item *item)
{
    const uint32_t asked = item->call->request.dimensions;
    vector v = {.hidden = (const double *)(const void *)item->hidden.data,
                .count = (uint32_t)(item->hidden.len / sizeof(double))};
    if (asked) v.count = RAD_MIN(v.count, asked);
    for (uint32_t i = 0; i < v.count; i++)
        v.length += v.hidden[i] * v.hidden[i];
    v.length = sqrt(v.length);
    return v;
}

/* One that has no length has no direction either: it stays what it is. */
static float number_of(const vector *v, uint32_t i)
{
    return (float)(v->length > 0 ? v->hidden[i] / v->length : v->hidden[i]);
}

static void put_floats(json_writer *w, const vector *v)
{
    char text[32];
    jw_open(w, '[');
    for (uint32_t i = 0; i < v->count; i++) { /* 9 digits are a float */
        const int len = snprintf(text, sizeof text, "%.9g", (double)number_of(v, i));
        jw_spliced(w, text, (size_t)len);
    }
    jw_close(w, ']');
}

/* Little-endian floats, as numpy reads them. */
static void put_base64(json_writer *w, const vector *v)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t len = (size_t)v->count * sizeof(float);
    unsigned char *bytes = calloc(1, len + 2);
    char *text = malloc((len + 2) / 3 * 4 + 1), *to = text;
    if (!bytes || !text) w->failed = true;
    for (uint32_t i = 0; bytes && text && i < v->count; i++) {
        const float f = number_of(v, i);
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        for (int k = 0; k < 4; k++)
            bytes[4 * (size_t)i + (size_t)k] = (unsigned char)(bits >> (8 * k));
    }
    for (size_t at = 0; bytes && text && at < len; at += 3) {
        const uint32_t three = (uint32_t)bytes[at] << 16 | (uint32_t)bytes[at + 1] << 8 |
                               bytes[at + 2];
        for (size_t k = 0; k < 4; k++)
            *to++ = at + k <= len ? digits[three >> (18 - 6 * k) & 63] : '=';
    }
    if (bytes && text) jw_text(w, text, (size_t)(to - text));
    free(bytes);
    free(text);
}

static void put_vector(json_writer *w, const call_item *item)
{
    const vector v = vector_of(item);
    if (item->call->request.base64)
        put_base64(w, &v);
    else
        put_floats(w, &v);
}

/* ---- OpenAI's answer ---- */

static void write_head(const call *c, json_writer *w)
{
    (void)c;
    jw_open(w, '{');
    jw_name(w, "object"), jw_word(w, "list");
    jw_name(w, "data"), jw_open(w, '[');
}

static void write_item(const call *c, call_item *item, json_writer *w)
{
    (void)c;
    jw_open(w, '{');
    jw_name(w, "object"), jw_word(w, "embedding");
    jw_name(w, "index"), jw_int(w, item->index);
    jw_name(w, "embedding"), put_vector(w, item);
    jw_close(w, '}');
}

static void write_tail(const call *c, json_writer *w)
{
    jw_close(w, ']');
    jw_name(w, "model"), jw_word(w, call_model(c));
    jw_name(w, "usage"), jw_json(w, json_usage(c));
    jw_close(w, '}');
}

/* ---- Ollama's ---- */

static void write_embed_head(const call *c, json_writer *w)
{
    jw_open(w, '{');
    jw_name(w, "model"), jw_word(w, call_model(c));
    jw_name(w, "embeddings"), jw_open(w, '[');
}

static void write_embed_item(const call *c, call_item *item, json_writer *w)
{
    (void)c;
    put_vector(w, item);
}

static void write_embed_tail(const call *c, json_writer *w)
{
    double seconds = 0;
    int64_t tokens = 0;
    for (uint32_t i = 0; i < c->num_items; i++) {
        seconds = RAD_MAX(seconds, c->items[i].e2e_latency_s);
        tokens += c->items[i].prompt_tokens;
    }
    jw_close(w, ']');
    jw_name(w, "total_duration"), jw_int(w, call_load_ns(c) + (int64_t)(seconds * 1e9));
    jw_name(w, "load_duration"), jw_int(w, call_load_ns(c));
    jw_name(w, "prompt_eval_count"), jw_int(w, tokens);
    jw_close(w, '}');
}

static void write_nothing(const call *c, json_writer *w)
{
    (void)c;
    (void)w;
}

static void write_only_item(const call *c, call_item *item, json_writer *w)
{
    (void)c;
    jw_open(w, '{');
    jw_name(w, "embedding"), put_vector(w, item);
    jw_close(w, '}');
}

/* Without a text. */
static void answer_nothing(call *c)
{
    if (c->ops->kind == API_OLLAMA_EMBED)
        call_reply_json(c, 200, json_pack("{s:s, s:[]}", "model", call_model(c), "embeddings"));
    else
        call_reply_json(c, 200, json_pack("{s:[]}", "embedding"));
}

static const call_ops openai_ops = {.kind = API_EMBEDDINGS,
                                    .id_prefix = "embd-",
                                    .write_head = write_head,
                                    .write_item = write_item,
                                    .write_tail = write_tail};
static const call_ops embed_ops = {.kind = API_OLLAMA_EMBED,
                                   .id_prefix = "embd-",
                                   .dialect = &ollama_dialect,
                                   .write_head = write_embed_head,
                                   .write_item = write_embed_item,
                                   .write_tail = write_embed_tail,
                                   .answer = answer_nothing};
static const call_ops only_ops = {.kind = API_OLLAMA_EMBEDDINGS,
                                  .id_prefix = "embd-",
                                  .dialect = &ollama_dialect,
                                  .write_head = write_nothing,
                                  .write_item = write_only_item,
                                  .write_tail = write_nothing,
                                  .answer = answer_nothing};

void handle_embeddings(server *s, struct evhttp_request *http)
{
    call_start(s, &openai_ops, http);
}

void handle_ollama_embed(server *s, struct evhttp_request *http)
{
    call_start(s, &embed_ops, http);
}

void handle_ollama_embeddings(server *s, struct evhttp_request *http)
{
    call_start(s, &only_ops, http);
}
