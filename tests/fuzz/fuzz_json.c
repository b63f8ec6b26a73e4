/* fuzz_json.c - request bodies: hostile bytes either become engine requests or a 400 in words.
 *
 * The first byte picks the dialect. What was parsed is read to its end, so that a pointer
 * or a length that is wrong shows under ASan. */
#include "server/api_request.h"

#include <stdlib.h>
#include <string.h>

static volatile unsigned sink;

static void read_bytes(const void *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        sink += ((const unsigned char *)bytes)[i];
}

static void read_text(const char *text)
{
    if (text) read_bytes(text, strlen(text));
}

static void read_item(const engine_request *r)
{
    int forms = (r->text != NULL) + (r->ids != NULL) + (r->messages != NULL);
    if (forms + (r->chat_json != NULL) != 1) abort();
    read_bytes(r->chat_json, r->chat_json ? r->chat_json_len : 0);
    read_bytes(r->text, r->text ? r->text_len : 0);
    read_bytes(r->ids, r->num_ids * sizeof *r->ids);
    for (uint32_t i = 0; i < r->num_messages; i++) {
        read_text(r->messages[i].role);
        read_bytes(r->messages[i].content, r->messages[i].content_len);
    }
    for (uint32_t i = 0; i < r->num_stop; i++)
        read_text(r->stop[i]);
    read_bytes(r->stop_token_ids, r->num_stop_token_ids * sizeof *r->stop_token_ids);
    read_bytes(r->sampling.id_logprobs,
               r->sampling.num_id_logprobs * sizeof *r->sampling.id_logprobs);
    read_text(r->extra_key);
    read_text(r->cache_salt);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    api_request request;
    api_error err;
    /* A copy of its own, so that one byte too far is a byte outside. */
    char *body = malloc(size);
    if (!body) return 0;
    memcpy(body, data + 1, size - 1);
    if (api_request_parse((api_kind)(data[0] % API_NUM_KINDS), body, size - 1, NULL, &request,
                          &err)) {
        free(body); /* nothing may point into it */
        body = NULL;
        bool ollama = request.kind == API_OLLAMA_CHAT || request.kind == API_OLLAMA_GENERATE ||
                      request.kind == API_OLLAMA_EMBED || request.kind == API_OLLAMA_EMBEDDINGS;
        if (!request.num_items && !ollama) abort();
        for (uint32_t i = 0; i < request.num_items; i++)
            read_item(&request.items[i]);
        read_text(request.rid);
        api_request_fini(&request);
    } else {
        if (err.http_status < 400 || !err.type || !err.message[0]) abort();
        read_text(err.message);
        read_text(err.param);
    }
    free(body);
    return 0;
}
