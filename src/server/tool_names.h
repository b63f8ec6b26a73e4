/* tool_names.h - tools of /v1/responses that the model knows under another name or form.
 *
 *     custom                      a function with one argument, whose text is the tool's input
 *     namespace "n", function "f"   the function n__f
 *
 * A request keeps them until its answer is out. */
#ifndef SERVER_TOOL_NAMES_H
#define SERVER_TOOL_NAMES_H

#include "server/api_request.h"

#define TOOL_NAME_JOIN "__"

/* A string, not empty, without what keeps names apart here. */
bool tool_name_is_fine(const json_t *name);

/* What the model calls it; NULL: no memory. */
json_t *tool_name_join(const json_t *space, const json_t *name);

/* A function of that namespace; a custom tool where `space` is NULL. False: no memory. */
bool tool_names_add(api_kept *kept, const json_t *space, const json_t *name);

bool tool_names_is_custom(const api_kept *kept, const char *name);

/* The namespace of what the model calls `name`, *len bytes; the client's name stands in `name`
 * behind it and TOOL_NAME_JOIN. NULL: it is in none. */
const char *tool_names_space(const api_kept *kept, const char *name, size_t *len);

#endif
