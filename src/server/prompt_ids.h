/* prompt_ids.h - conversations in ids, beside those that the engine makes of a request.
 *
 * A template writes something between an answer and what follows it (a line's end, and not the
 * system prompt of an empty conversation). To go on from ids, what is new is rendered behind a
 * stand-in for the history, and taken from behind that one's end token:
 *
 *     history, as ids          ... the answer <|im_end|>
 *     the stand-in             <|im_start|>user\n0 1 2<|im_end|>\n<|im_start|>assistant\n2 1
 * 0<|im_end|> what is new behind it    \n<|im_start|>tool\n...<|im_end|>\n<|im_start|>assistant\n
 *
 * All of it encodes, and so takes its time: a worker's, any thread. */
#ifndef SERVER_PROMPT_IDS_H
#define SERVER_PROMPT_IDS_H

#include "engine/engine.h"
#include "server/json_in.h"

/* The request's conversation as an object, whichever form it has; to be given back, its memory the
 * room's. NULL: no memory. */
json_t *prompt_talk(const engine_request *q, json_room *room);

/* Its ids; false: the template refuses it, or memory is short. */
bool prompt_ids_of(engine *e, const json_t *talk, token_buf *out);

/* Where the end of `before`'s last `end` stands in `all`, which begins like it: behind the same
 * number of such tokens, and the same words. 0: nowhere. */
uint32_t prompt_ids_same_end(const token_buf *before, const token_buf *all, rad_token end);

/* Of new messages: what a template writes behind an answer that ended with the token `end`. False:
 * the template does something else with the stand-in, and *out is of no use. */
bool prompt_ids_behind(engine *e, const engine_request *q, json_room *room, rad_token end,
                       token_buf *out);

#endif
