/* gemm_weight.h - a packed weight, for what packs it (gemm_weight.c) and what multiplies by it
 * (gemm.c).
 *
 * A panel is 64 rows of W side by side, so that one step of k is contiguous (here
 * f32; bf16 interleaves two k, [K/2][64][2]; f16w has them one after the other, [K/2][2][64]):
 *
 *     panel 0:  k=0 | w0 w1 ... w63 |  k=1 | w0 w1 ... w63 |  ...
 *     panel 1:  k=0 | w64 ...  w127 |  ...
 *
 * Of a quantised weight a step is 32 or 256 k (gemm_quant.h).
 *
 * Rows of different types have panels of their own: a weight is a chain of parts, most of one
 * part alone. The panels of all parts are counted through, the last of each may be half empty. */
#ifndef MODEL_GEMM_WEIGHT_H
#define MODEL_GEMM_WEIGHT_H

#include "base/base.h"
#include "model/gemm_kernels.h"

struct gemm_weight {
    rad_env env;
    const gemm_isa *isa;
    gemm_type type;
    uint32_t n, k; /* of this part, as are: */
    uint32_t num_panels;
    uint32_t depth; /* steps per panel */
    size_t bytes;
    void *data;
    bool borrowed;           /* data is the caller's */
    gemm_weight *beside;     /* the part behind it, or NULL */
    const gemm_weight *next; /* what runs after all of them, or NULL; of the first part */
};

/* How a panel's step looks: values of k in it, and bytes for all GEMM_PANEL rows. */
typedef struct gemm_step_shape {
    const char *name;
    uint32_t values, bytes;
} gemm_step_shape;
extern const gemm_step_shape gemm_steps[GEMM_NUM_TYPES];

static inline bool quantised(gemm_type type)
{
    return type >= GEMM_Q8_0;
}

/* The kernels read x as the caller has it. */
static inline bool reads_x(gemm_type type)
{
    return type == GEMM_F32 || type == GEMM_BF16W || type == GEMM_F16W;
}

static inline size_t step_bytes(const gemm_weight *w)
{
    return gemm_steps[w->type].bytes;
}

static inline char *panel_start(const gemm_weight *w, uint32_t panel)
{
    return (char *)w->data + (size_t)panel * w->depth * step_bytes(w);
}

/* The part that has panel *panel of all, which becomes its number there. */
static inline const gemm_weight *part_of_panel(const gemm_weight *w, uint32_t *panel)
{
    for (; *panel >= w->num_panels; w = w->beside)
        *panel -= w->num_panels;
    return w;
}

#endif
