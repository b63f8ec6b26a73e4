/* api_sampling.h - what the files that read requests share, see api_request.h. */
#ifndef SERVER_API_SAMPLING_H
#define SERVER_API_SAMPLING_H

#include "server/api_request.h"

/* A list of token ids, each in [0, 2^31). */
bool api_parse_ids(api_request *r, const json_t *list, const char *key, rad_token **ids,
                   uint32_t *num_ids, api_error *err);

/* After a dialect's parse: logprobs and n for all items. */
bool api_expand_choices(api_request *r, api_error *err);

#endif
