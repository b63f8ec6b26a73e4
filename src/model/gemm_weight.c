/* gemm_weight.c - takes rows as they come and packs them into panels. */
#include "model/gemm_weight.h"

#include <sys/mman.h>

enum { PACK_ROWS = 16 }; /* rows packed together: one line of output each step */

const gemm_step_shape gemm_steps[GEMM_NUM_TYPES] = {
    [GEMM_F32] = {"f32", 1, GEMM_PANEL * 4},
    [GEMM_BF16] = {"bf16", 2, GEMM_PANEL * 4},
    [GEMM_BF16W] = {"bf16w", 2, GEMM_PANEL * 4},
    [GEMM_F16W] = {"f16w", 2, GEMM_PANEL * 4},
    [GEMM_Q8_0] = {"q8_0", 32, sizeof(gemm_q8_0_step)},
    [GEMM_Q4_0] = {"q4_0", 32, sizeof(gemm_q4_0_step)},
    [GEMM_Q4_1] = {"q4_1", 32, sizeof(gemm_q4_1_step)},
    [GEMM_Q5_0] = {"q5_0", 32, sizeof(gemm_q5_0_step)},
    [GEMM_Q5_1] = {"q5_1", 32, sizeof(gemm_q5_1_step)},
    [GEMM_IQ4_NL] = {"iq4_nl", 32, sizeof(gemm_iq4_nl_step)},
    [GEMM_MXFP4] = {"mxfp4", 32, sizeof(gemm_mxfp4_step)},
    [GEMM_Q2_K] = {"q2_K", 256, sizeof(gemm_q2_k_step)},
    [GEMM_Q3_K] = {"q3_K", 256, sizeof(gemm_q3_k_step)},
    [GEMM_Q4_K] = {"q4_K", 256, sizeof(gemm_q4_k_step)},
    [GEMM_Q5_K] = {"q5_K", 256, sizeof(gemm_q5_k_step)},
    [GEMM_Q6_K] = {"q6_K", 256, sizeof(gemm_q6_k_step)},
    [GEMM_IQ4_XS] = {"iq4_xs", 256, sizeof(gemm_iq4_xs_step)},
};

const char *gemm_type_name(gemm_type type)
{
    return type < GEMM_NUM_TYPES ? gemm_steps[type].name : "unknown";
}

static uint32_t depth_of(gemm_type type, uint32_t k)
{
    return k / gemm_steps[type].values + (k % gemm_steps[type].values != 0);
}

static uint32_t num_panels_of(uint32_t n)
{
    return n / GEMM_PANEL + (n % GEMM_PANEL != 0);
}

size_t gemm_weight_bytes(gemm_type type, uint32_t n, uint32_t k)
{
    size_t panel_bytes = rad_mul(depth_of(type, k), gemm_steps[type].bytes);
    return rad_mul(num_panels_of(n), panel_bytes);
}

/* Before the first touch, or it comes too late. A wish; what does not fit is no loss. */
static void ask_for_huge_pages(void *data, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    uintptr_t huge = 2 << 20, begin = ((uintptr_t)data + huge - 1) & -huge;
    uintptr_t end = ((uintptr_t)data + bytes) & -huge;
    if (begin < end) madvise((void *)begin, end - begin, MADV_HUGEPAGE);
#else
    (void)data, (void)bytes;
#endif
}

void *gemm_alloc(const rad_env *env, size_t bytes)
{
    void *memory = env->alloc(env->user, bytes);
    if (memory) ask_for_huge_pages(memory, bytes);
    return memory;
}

/* What nobody will set: rows behind n, and a half-filled last step of k. */
static void zero_padding(gemm_weight *w)
{
    size_t panel_bytes = w->bytes / w->num_panels, from = w->bytes;
    if (w->n % GEMM_PANEL) from -= panel_bytes;
    if (w->k % gemm_steps[w->type].values) from = 0;
    memset((char *)w->data + from, 0, w->bytes - from);
}

static rad_status no_memory(gemm_weight *w, uint32_t n, uint32_t k, size_t bytes, rad_error *err)
{
    gemm_weight_destroy(w);
    return rad_fail(err, RAD_E_NOMEM, "gemm: no memory for a weight of %u x %u, %zu bytes", n, k,
                    bytes);
}

rad_status gemm_weight_create_shape(const rad_env *env, gemm_type type, uint32_t n, uint32_t k,
                                    const gemm_isa *isa, gemm_weight **out, rad_error *err)
{
    *out = NULL;
    if (n == 0 || k == 0) return rad_fail(err, RAD_E_INVAL, "gemm: a weight of %u x %u", n, k);
    if ((unsigned)type >= GEMM_NUM_TYPES)
        return rad_fail(err, RAD_E_INVAL, "gemm: weights of type %d are unknown", (int)type);
    if ((gemm_steps[type].values == 256 && k % 256) ||
        ((type == GEMM_BF16W || type == GEMM_F16W) && k % 2))
        return rad_fail(err, RAD_E_INVAL, "gemm: rows of %u in %s", k, gemm_steps[type].name);
    rad_env full = rad_env_or_default(env);
    size_t bytes = gemm_weight_bytes(type, n, k);
    gemm_weight *w = bytes ? rad_alloc(&full, sizeof *w) : NULL;
    if (!w) return no_memory(w, n, k, bytes, err);
    *w = (gemm_weight){.env = full,
                       .isa = isa ? isa : gemm_isa_find(NULL),
                       .type = type,
                       .n = n,
                       .k = k,
                       .num_panels = num_panels_of(n),
                       .depth = depth_of(type, k),
                       .bytes = bytes,
                       .borrowed = true};
    *out = w;
    return RAD_OK;
}

static rad_status create_in(const rad_env *env, void *memory, gemm_type type, uint32_t n,
                            uint32_t k, const gemm_isa *isa, gemm_weight **out, rad_error *err)
{
    gemm_weight *w;
    *out = NULL;
    rad_status status = gemm_weight_create_shape(env, type, n, k, isa, &w, err);
    if (status != RAD_OK) return status;
    w->borrowed = memory != NULL;
    w->data = memory ? memory : gemm_alloc(&w->env, w->bytes);
    if (!w->data) return no_memory(w, n, k, w->bytes, err);
    zero_padding(w);
    *out = w;
    return RAD_OK;
}

rad_status gemm_weight_create(const rad_env *env, gemm_type type, uint32_t n, uint32_t k,
                              const gemm_isa *isa, gemm_weight **out, rad_error *err)
{
    return create_in(env, NULL, type, n, k, isa, out, err);
}

rad_status gemm_weight_create_stack(const rad_env *env, void *memory, const gemm_part *parts,
                                    uint32_t num_parts, uint32_t k, const gemm_isa *isa,
                                    gemm_weight **out, rad_error *err)
{
    *out = NULL;
    uint32_t room = UINT32_MAX;
    for (uint32_t i = 0; i < num_parts; room -= parts[i++].n) {
        gemm_type first = parts[0].type, type = parts[i].type;
        if (type != first && !(quantised(type) && quantised(first)))
            return rad_fail(err, RAD_E_INVAL, "gemm: rows of %s and %s in one stack",
                            gemm_type_name(first), gemm_type_name(type));
        if (parts[i].n > room) return rad_fail(err, RAD_E_INVAL, "gemm: too many rows in a stack");
    }
    gemm_weight *stack = NULL, **last = &stack;
    rad_status status = RAD_OK;
    if (!num_parts) status = rad_fail(err, RAD_E_INVAL, "gemm: a stack of nothing");
    for (uint32_t i = 0; i < num_parts && status == RAD_OK; i++) {
        status = create_in(env, memory, parts[i].type, parts[i].n, k, isa, last, err);
        if (status != RAD_OK) break;
        if (memory) memory = (char *)memory + (*last)->bytes;
        last = &(*last)->beside;
    }
    if (status != RAD_OK) {
        gemm_weight_destroy(stack);
        return status;
    }
    *out = stack;
    return RAD_OK;
}

void gemm_weight_destroy(gemm_weight *w)
{
    while (w) {
        gemm_weight *beside = w->beside;
        rad_env env = w->env;
        if (!w->borrowed) rad_free(&env, w->data, w->bytes);
        rad_free(&env, w, sizeof *w);
        w = beside;
    }
}

/* The part that has row *row of all, which becomes its number there. */
static const gemm_weight *part_of_row(const gemm_weight *w, uint32_t *row)
{
    for (; *row >= w->n && w->beside; w = w->beside)
        *row -= w->n;
    return w;
}

uint32_t gemm_weight_n(const gemm_weight *w)
{
    uint32_t n = 0;
    for (; w; w = w->beside)
        n += w->n;
    return n;
}
uint32_t gemm_weight_k(const gemm_weight *w)
{
    return w->k;
}

gemm_type gemm_weight_type(const gemm_weight *w)
{
    return w->type;
}

bool gemm_weight_reads_x(const gemm_weight *w)
{
    return reads_x(w->type);
}

gemm_type gemm_weight_type_of_row(const gemm_weight *w, uint32_t row)
{
    return part_of_row(w, &row)->type;
}

void gemm_weight_set_next(gemm_weight *w, const gemm_weight *next)
{
    w->next = next;
}

/* The first element of row n: f32 elements follow at GEMM_PANEL, pairs of bf16 at
 * 2 * GEMM_PANEL. */
static void *row_start(const gemm_weight *w, uint32_t n)
{
    return panel_start(w, n / GEMM_PANEL) + n % GEMM_PANEL * sizeof(float);
}

/* The same of f16w, whose k follow at GEMM_PANEL halves. */
static uint16_t *row_start_f16(const gemm_weight *w, uint32_t n)
{
    return (uint16_t *)panel_start(w, n / GEMM_PANEL) + n % GEMM_PANEL;
}

/* `count` <= PACK_ROWS rows that lie in one panel. k is the outer loop, so that
 * whole lines are written; the rows read meanwhile are few enough to stay cached. */
static void pack_rows(gemm_weight *w, uint32_t first, uint32_t count, const float *rows, size_t ldr)
{
    if (quantised(w->type)) {
        RAD_ASSERT_ENV(&w->env, w->type == GEMM_Q8_0);
        for (uint32_t r = 0; r < count; r++)
            gemm_quant_round_row(panel_start(w, first / GEMM_PANEL), (first + r) % GEMM_PANEL, w->k,
                                 rows + r * ldr);
        return;
    }
    if (w->type == GEMM_F32) {
        float *dst = row_start(w, first);
        for (uint32_t k = 0; k < w->k; k++, dst += GEMM_PANEL)
            for (uint32_t r = 0; r < count; r++)
                dst[r] = rows[r * ldr + k];
        return;
    }
    if (w->type == GEMM_F16W) {
        uint16_t *half = row_start_f16(w, first);
        for (uint32_t k = 0; k < w->k; k++, half += GEMM_PANEL)
            for (uint32_t r = 0; r < count; r++)
                half[r] = f16_from_f32(rows[r * ldr + k]);
        return;
    }
    uint16_t *dst = row_start(w, first);
    for (uint32_t k = 0; k < w->k; k += 2, dst += 2 * GEMM_PANEL)
        for (uint32_t r = 0; r < count; r++) {
            dst[2 * r] = bf16_from_f32(rows[r * ldr + k]);
            dst[2 * r + 1] = k + 1 < w->k ? bf16_from_f32(rows[r * ldr + k + 1]) : 0;
        }
}

void gemm_weight_set_rows(gemm_weight *w, uint32_t first, uint32_t count, const float *rows,
                          size_t ldr)
{
    w = (gemm_weight *)part_of_row(w, &first);
    RAD_ASSERT_ENV(&w->env, first <= w->n && count <= w->n - first);
    while (count) {
        uint32_t some = RAD_MIN(count, PACK_ROWS - first % PACK_ROWS);
        pack_rows(w, first, some, rows, ldr);
        first += some;
        count -= some;
        rows += some * ldr;
    }
}

/* Pairs of bf16 from a file's rows, as pack_rows. */
static void pack_bf16(gemm_weight *w, uint32_t first, uint32_t count, const char *from,
                      size_t pitch)
{
    uint32_t *dst = row_start(w, first);
    for (uint32_t pair = 0; pair < w->depth; pair++, dst += GEMM_PANEL, from += sizeof *dst)
        for (uint32_t r = 0; r < count; r++)
            memcpy(dst + r, from + r * pitch, sizeof *dst);
}

/* f16 from a file's rows likewise. */
static void pack_f16(gemm_weight *w, uint32_t first, uint32_t count, const char *from, size_t pitch)
{
    uint16_t *dst = row_start_f16(w, first);
    for (uint32_t k = 0; k < w->k; k++, dst += GEMM_PANEL, from += sizeof *dst)
        for (uint32_t r = 0; r < count; r++)
            memcpy(dst + r, from + r * pitch, sizeof *dst);
}

void gemm_weight_set_blocks(gemm_weight *w, uint32_t first, uint32_t count, const void *rows,
                            size_t pitch)
{
    w = (gemm_weight *)part_of_row(w, &first);
    RAD_ASSERT_ENV(&w->env, first <= w->n && count <= w->n - first);
    RAD_ASSERT_ENV(&w->env, w->type != GEMM_F32 && w->k % gemm_steps[w->type].values == 0);
    const char *from = rows;
    while (count) {
        uint32_t some = RAD_MIN(count, PACK_ROWS - first % PACK_ROWS);
        if (w->type == GEMM_F16W)
            pack_f16(w, first, some, from, pitch);
        else if (!quantised(w->type))
            pack_bf16(w, first, some, from, pitch);
        else
            gemm_quant_pack(w->type, panel_start(w, first / GEMM_PANEL), first % GEMM_PANEL, some,
                            w->depth, from, pitch);
        first += some;
        count -= some;
        from += some * pitch;
    }
}

void gemm_weight_get_row(const gemm_weight *w, uint32_t n, float *row)
{
    w = part_of_row(w, &n);
    RAD_ASSERT_ENV(&w->env, n < w->n);
    if (quantised(w->type)) {
        gemm_quant_get_row(w->type, panel_start(w, n / GEMM_PANEL), n % GEMM_PANEL, w->k, row);
        return;
    }
    if (w->type == GEMM_F32) {
        const float *src = row_start(w, n);
        for (uint32_t k = 0; k < w->k; k++)
            row[k] = src[(size_t)k * GEMM_PANEL];
        return;
    }
    if (w->type == GEMM_F16W) {
        const uint16_t *src = row_start_f16(w, n);
        for (uint32_t k = 0; k < w->k; k++)
            row[k] = f16_to_f32(src[(size_t)k * GEMM_PANEL]);
        return;
    }
    const uint16_t *src = row_start(w, n);
    for (uint32_t k = 0; k < w->k; k++)
        row[k] = bf16_to_f32(src[(size_t)(k / 2) * 2 * GEMM_PANEL + k % 2]);
}
