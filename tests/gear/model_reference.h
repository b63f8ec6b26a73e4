/* model_reference.h - the judge: a whole sequence through the model, in doubles.
 *
 * No cache, no batch, no blocks, no threads and nothing shared with the fast path
 * but the reading of the file; every line is the textbook's: about a second per billion
 * weights and token. */
#ifndef GEAR_MODEL_REFERENCE_H
#define GEAR_MODEL_REFERENCE_H

#include "gguf/gguf.h"

#include <radish/types.h>

/* logits[num_tokens][vocab_size]: what the model says after each token. vocab_size is
 * model_config's. Errors as model_runner_create's, and RAD_E_INVAL for a token id outside the
 * vocabulary or more tokens than the context holds. */
rad_status model_reference_logits(const rad_env *env, const gguf_file *file,
                                  const rad_token *tokens, uint32_t num_tokens, double *logits,
                                  rad_error *err);

/* The same, with what stands before the output's matrix, hidden[num_tokens][dim] (NULL: not asked
 * for), and how clearly routers chose: the smallest difference between the score of the last
 * expert that was chosen and of the first that was not; infinite where that never was a choice. An
 * engine whose rounding is coarser than that may choose another one. */
rad_status model_reference_routed(const rad_env *env, const gguf_file *file,
                                  const rad_token *tokens, uint32_t num_tokens, double *logits,
                                  double *hidden, double *clear, rad_error *err);

/* What the head of the file says that predicts a further token (src/model/nextn.h):
 * logits[num_tokens - 1][vocab_size], row i behind tokens[i + 1]. The model has seen
 * tokens[0 .. known); what stands behind, the head has guessed, and goes on from what it has made
 * of that. RAD_E_UNSUPPORTED as model_config_use_nextn's. */
rad_status model_reference_nextn(const rad_env *env, const gguf_file *file, const rad_token *tokens,
                                 uint32_t num_tokens, uint32_t known, double *logits, double *clear,
                                 rad_error *err);

#endif
