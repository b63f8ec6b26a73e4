/* call_refused.c - what the engine says no with, in HTTP's terms: a status, a code, the parameter
 * that is to blame. */
#include "server/api_forms.h"
#include "server/call_parts.h"

#include <stdio.h>

/* What the engine refuses is the prompt (its length, ids, roles): what else a client may get
 * wrong was found in its JSON, but for the length of the two namespace keys together. */
static const char *refused_param(const call_item *item)
{
    if (strncmp(item->message, "extra_key ", 10) == 0) return "extra_key";
    if (strncmp(item->message, "logit_bias", 10) == 0) return "logit_bias";
    if (strncmp(item->message, "token_ids_logprob", 17) == 0) return "token_ids_logprob";
    if (strncmp(item->message, "logprobs of the prompt", 22) == 0) return "logprob_start_len";
    if (strncmp(item->message, "the prediction has ", 19) == 0) return "prediction";
    const char *form = api_form_named(item->message);
    return form ? form : item->refused_param;
}

bool fail_by_status(api_error *err, rad_status status, const char *param, const char *words)
{
    int http_status = 500;
    switch (status) {
    case RAD_E_INVAL:
    case RAD_E_LIMIT:
    case RAD_E_UNSUPPORTED:
    case RAD_E_FORMAT: http_status = 400; break;
    case RAD_FULL: http_status = 429; break;
    case RAD_AGAIN:
    case RAD_E_NOMEM: http_status = 503; break;
    default: break;
    }
    if (status != RAD_E_INVAL && status != RAD_E_LIMIT) param = NULL;
    api_fail(err, http_status, param, "%s", words);
    if (status == RAD_E_LIMIT) err->code = "context_length_exceeded"; /* agents shorten on it */
    return false;
}

void call_error_of(const call_item *item, api_error *err)
{
    const char *words = item->message[0] ? item->message : rad_status_name(item->status);
    uint32_t n = RAD_MAX(item->call->request.n, 1u);
    char numbered[sizeof item->message + 32];
    snprintf(numbered, sizeof numbered, "prompt %u: %s", item->index / n, words);
    fail_by_status(err, item->status, refused_param(item),
                   item->call->num_items > n ? numbered : words);
    if (item->status != RAD_E_LIMIT) return;
    err->prompt_tokens = item->prompt_tokens;
    err->context_tokens = engine_get_info(item->call->server->engine)->context_length;
}
