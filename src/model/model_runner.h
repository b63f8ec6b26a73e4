/* model_runner.h - a GGUF model on this CPU behind the runner interface. */
#ifndef MODEL_MODEL_RUNNER_H
#define MODEL_MODEL_RUNNER_H

#include "attn/attn_backend.h"
#include "gguf/gguf.h"
#include "model/config.h"
#include "model/gemm.h"
#include "model/runner.h"
#include "model/weights_policy.h"

typedef struct model_runner_params {
    rad_dtype dtype;           /* of weights unless the policy says otherwise, and of KV:
                                * RAD_F32 or RAD_BF16 */
    uint32_t max_batch_tokens; /* most new tokens a batch can have; 0 = 2048 */
    uint32_t max_batch_logits; /* most rows with logits; 0 = 256 */
    uint32_t context_length;   /* that will be in force; 0 = the model's (see config.h) */
    rad_dtype kv_dtype;        /* of KV, when set_kv_dtype */
    weights_policy weights;
    bool set_kv_dtype;        /* else KV is stored as `dtype` */
    bool nextn;               /* a head of the file's that guesses is loaded, if there is one that
                               * we can use (see nextn.h) */
    const attn_backend *attn; /* NULL = attn_cpu(NULL) */
    const gemm_isa *gemm;     /* of its products; NULL = gemm_isa_find(NULL) */
    uint32_t
        num_threads; /* that load, compute and sample, the caller's included; 0 = one per CPU */
    uint32_t reserved;
    const runner
        *threads_of; /* another model_runner, whose threads it computes with in place of its
                      * own; called by the same thread, and destroyed later. NULL: none */
    /* Loading reports here when not NULL: done of total bytes. */
    void (*progress)(void *user, uint64_t done, uint64_t total);
    void *progress_user;
} model_runner_params;

/* Starts its threads, and loads the weights out of `file` (they are converted and packed; the file
 * may be closed afterwards). Errors name the key or tensor: RAD_E_UNSUPPORTED for an architecture
 * or tensor type that we do not have, RAD_E_FORMAT for a missing or misshapen tensor or key,
 * RAD_E_NOMEM with the bytes that were wanted, RAD_E_LIMIT when the system gives no more threads.
 */
rad_status model_runner_create(const rad_env *env, const gguf_file *file,
                               const model_runner_params *params, runner **out, rad_error *err);

/* Experts whose matrices the last batch read: in each layer those that any of its rows chose, over
 * all layers. 0 for a model without experts. */
uint64_t model_runner_experts_read(const runner *r);

/* What a model takes in memory once it is loaded. */
typedef struct model_sizes {
    uint64_t weights_bytes;                /* of all tensors, as they are held */
    uint64_t matrix_bytes[GEMM_NUM_TYPES]; /* of packed matrices among them, by type */
    uint64_t buffers_bytes;                /* for the largest batch; touched as batches come */
} model_sizes;

/* "bf16", or "bf16+q8_0" of a model that has both: of matrix_bytes. */
void model_types_name(const uint64_t matrix_bytes[GEMM_NUM_TYPES], char *out, size_t size);

/* The same as model_runner_create with these params would take. Of the file nothing but its
 * metadata is read. Errors as model_runner_create's. */
rad_status model_runner_measure(const rad_env *env, const gguf_file *file,
                                const model_runner_params *params, model_sizes *out,
                                rad_error *err);

/* What the runner of a model like this will say of itself, before it is loaded: all but threads and
 * names. */
runner_info model_runner_info(const model_config *c, rad_dtype kv_dtype);

#endif
