/* api_prediction.h - what a client says that the answer will likely be.
 *
 * OpenAI's {"type": "content", "content": ...} of chat completions; /v1/completions and /generate
 * take it as well. It makes the answer faster where it is right (sched/draft_prediction.h), and
 * never another one. */
#ifndef SERVER_API_PREDICTION_H
#define SERVER_API_PREDICTION_H

#include "server/api_request.h"

/* `prediction` of r->root, where it is given, for all items. */
bool api_parse_prediction(api_request *r, api_error *err);

#endif
