/* cached_tokens.h - what clients are told of what their prompts found in the cache.
 *
 * Whoever shares a namespace with others can guess their prompts token by token from exact counts:
 * a guess that finds one token more was right. So the counts may be rounded down, or not be told.
 * What says where a match ended, and why, is as fine as an exact count: it is told with exact ones
 * only, as are the figures of the cache in /metrics and /server_info (unless the operator says
 * that only he reads them), which somebody could read before and after a request of his own.
 *
 * How long the first token takes says something in any case. */
#ifndef SERVER_CACHED_TOKENS_H
#define SERVER_CACHED_TOKENS_H

#include "server/server.h"

#include <stdbool.h>

bool cached_exact(const server_params *p);
bool cached_told(const server_params *p); /* exact or rounded */

/* The counts of one prompt as they are told; sums are of these. */
prompt_hits cached_shown(const server_params *p, prompt_hits hits);

/* Whether figures of the cache stand in /metrics and /server_info. */
bool cached_figures(const server_params *p);

#endif
