/* nextn.h - a head of the model that says what will probably stand behind the next token.
 *
 * Files call it nextn, papers multi-token prediction. It is one layer more. What it knows of
 * position i is an entry, made of what the model says there and of the token behind it:
 *
 *     entry_i   = eh_proj . [ rms(embed(t[i+1])) | rms(hidden_i) ]     hidden: behind the last norm
 *     hidden'_i = last_norm(layer(entry_i))                            attends to entries 0 .. i
 *     logits    = output . hidden'_i                                   of t[i+2]
 *
 * and hidden' serves as the hidden state of the position behind, so the same head says one token
 * after another. (A file may have several heads, for the second guess and so on; the first is used
 * for all.)
 *
 * An entry's K and V lie in the pool of the model's own, as one layer more, in the slot of position
 * i. So the tree, tiers, sessions and eviction carry them along. A batch writes those of its tokens
 * whose next one is known, which takes eh_proj and K and V but no attention; of the others, and
 * where nobody wants guesses, zeros: no slot has what was written for somebody else's text. When
 * their next one is known they can be written later, several at one time. An
 * entry that was made for another next token makes a guess worse and no answer different: the
 * model's layers never look at this one.
 *
 * What is to be guessed from lies in places, hidden states that a runner keeps for whom it
 * concerns. */
#ifndef MODEL_NEXTN_H
#define MODEL_NEXTN_H

#include "model/forward.h"

struct step;

/* Behind the last layer of a forward pass, when s->b->x has what it left of all new tokens
 * (batch->next_ids) or of some (NULL: all entries are zeros). Writes the entries' K and V; x stays
 * as it is. Waits for loads of the head's layer, as attention does for those of its own. */
rad_status nextn_write(struct step *s, rad_error *err);

/* Keeps the hidden states of the rows of logits: they are in s->b->norm. */
void nextn_keep_rows(const struct step *s);

/* Of a row of logits of the last forward pass: its hidden state goes to a place. */
void nextn_keep(const forward_pass *pass, uint32_t row, uint32_t place);

/* What the head says behind the one token of each request of the batch, which batch_check has let
 * through: input_ids are the tokens behind the positions, out_cache_loc is where the entry goes.
 * The hidden state at request i's position is in place from[i], and the head's own goes to to[i].
 * Rows of logits as forward_run leaves them. num_logits 0: entries are written, and nothing is
 * guessed. */
rad_status nextn_guess(const forward_pass *pass, const forward_batch *batch, const uint32_t *from,
                       const uint32_t *to, rad_error *err);

#endif
