/* test_kv_pool_memory.c - slots as bytes, memory that is the caller's, layers of a stage. */
#include "gear/kv_buffers.h"
#include "resident.h"
#include "test.h"

#include <radish/token_to_kv_pool.h>

enum { PAGES = 6, PAGE = 4, SLOTS = (PAGES + 1) * PAGE, LAYERS = 2, HEADS = 2, DIM = 5, V_DIM = 3 };
enum { K_NUMBERS = HEADS * DIM, V_NUMBERS = HEADS * V_DIM };

static const uint32_t dtype_size[] = {4, 2, 2, 1, 1, 1};

static rad_token_to_kv_pool_params params_for(uint32_t dtype)
{
    return (rad_token_to_kv_pool_params){.struct_size = sizeof(rad_token_to_kv_pool_params),
                                         .num_pages = PAGES,
                                         .page_size = PAGE,
                                         .num_layers = LAYERS,
                                         .num_kv_heads = HEADS,
                                         .head_dim = DIM,
                                         .v_head_dim = V_DIM,
                                         .dtype = dtype};
}

static rad_token_to_kv_pool *make(const rad_token_to_kv_pool_params *p)
{
    rad_token_to_kv_pool *pool = NULL;
    rad_error err = {0};
    rad_status status = rad_token_to_kv_pool_create(NULL, p, &pool, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    return pool;
}

static void fill(rad_token_to_kv_pool *pool, uint32_t first_layer, rad_slot slot, uint64_t *state)
{
    float k[K_NUMBERS], v[V_NUMBERS];
    for (uint32_t layer = first_layer; layer < first_layer + LAYERS; layer++) {
        for (int i = 0; i < K_NUMBERS; i++)
            k[i] = (float)((double)test_random(state) / 1e19 - 0.9);
        for (int i = 0; i < V_NUMBERS; i++)
            v[i] = (float)((double)test_random(state) / 1e19 - 0.9);
        rad_kv_pool_set_kv_buffer(pool, layer, &slot, 1, k, v);
    }
}

/* The copy of some slots, put together byte by byte from the buffers. */
static size_t naive_copy(rad_token_to_kv_pool *pool, const rad_slot *slots, uint32_t count,
                         char *out)
{
    const rad_token_to_kv_pool_params *p = rad_kv_pool_params(pool);
    char *at = out;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        rad_kv_buffers b;
        CHECK_OK(rad_kv_pool_get_buffers(pool, p->start_layer + layer, &b));
        for (int part = 0; part < 4; part++) {
            const char *base = part == 0   ? b.k
                               : part == 1 ? (char *)b.k_scale
                               : part == 2 ? b.v
                                           : (char *)b.v_scale;
            size_t stride = part == 0   ? b.k_stride
                            : part == 1 ? b.k_scale_stride
                            : part == 2 ? b.v_stride
                                        : b.v_scale_stride;
            size_t bytes = part % 2 ? HEADS * sizeof(float)
                                    : (size_t)(part ? V_NUMBERS : K_NUMBERS) * dtype_size[p->dtype];
            if (!base) continue;
            for (uint32_t i = 0; i < count; i++, at += bytes)
                memcpy(at, base + (size_t)slots[i] * stride, bytes);
        }
    }
    return (size_t)(at - out);
}

TEST(slots_in_any_order_go_out_and_come_back_elsewhere)
{
    uint64_t seed = test_seed(), state = seed;
    static char copy[SLOTS * 400], naive[SLOTS * 400];
    for (uint32_t dtype = RAD_F32; dtype <= RAD_I8; dtype++) {
        rad_token_to_kv_pool_params p = params_for(dtype);
        rad_token_to_kv_pool *pool = make(&p);
        size_t token = rad_kv_pool_bytes_per_token(&p);
        CHECK(token <= 400);
        for (rad_slot slot = 0; slot < SLOTS; slot++)
            fill(pool, 0, slot, &state);
        for (int round = 0; round < 300; round++) {
            /* `count` different slots to read and as many to write, partly in runs. */
            rad_slot from[SLOTS], to[SLOTS];
            uint32_t count = (uint32_t)(test_random(&state) % (SLOTS + 1));
            int shift = (int)(test_random(&state) % SLOTS);
            const int steps[] = {1, 1, 3, 5, SLOTS - 1}; /* none shares a divisor with 28 */
            int step = steps[test_random(&state) % 5], back = steps[test_random(&state) % 5];
            for (uint32_t i = 0; i < count; i++) {
                from[i] = ((int)i * step + shift) % SLOTS;
                to[i] = ((int)i * back) % SLOTS;
            }
            float k[SLOTS][K_NUMBERS], v[SLOTS][V_NUMBERS], k2[SLOTS][K_NUMBERS],
                v2[SLOTS][V_NUMBERS];
            CHECK_OK(rad_kv_pool_get_kv(pool, 1, from, count, k[0], v[0]));
            CHECK_OK(rad_kv_pool_get_cpu_copy(pool, from, count, copy, count * token));
            CHECK(naive_copy(pool, from, count, naive) == count * token);
            CHECKF(memcmp(copy, naive, count * token) == 0, "seed %llu", (unsigned long long)seed);
            CHECK_OK(rad_kv_pool_load_cpu_copy(pool, to, count, copy, count * token));
            CHECK_OK(rad_kv_pool_get_kv(pool, 1, to, count, k2[0], v2[0]));
            CHECKF(memcmp(k, k2, count * sizeof k[0]) == 0 &&
                       memcmp(v, v2, count * sizeof v[0]) == 0,
                   "seed %llu", (unsigned long long)seed);
        }

        rad_page page = 3;
        rad_slot slots[PAGE] = {12, 13, 14, 15};
        CHECK_OK(rad_kv_pool_get_page(pool, page, copy, PAGE * token));
        CHECK_OK(rad_kv_pool_get_cpu_copy(pool, slots, PAGE, naive, PAGE * token));
        CHECK(memcmp(copy, naive, PAGE * token) == 0);
        CHECK_OK(rad_kv_pool_set_page(pool, 5, copy, PAGE * token));
        for (int i = 0; i < PAGE; i++)
            slots[i] = 20 + i;
        CHECK_OK(rad_kv_pool_get_cpu_copy(pool, slots, PAGE, copy, PAGE * token));
        CHECK(memcmp(copy, naive, PAGE * token) == 0);

        rad_slot twice[6] = {3, 4, 4, 5, 3, 4}; /* reading a slot more than once is fine */
        CHECK_OK(rad_kv_pool_get_cpu_copy(pool, twice, 6, copy, 6 * token));
        CHECK(naive_copy(pool, twice, 6, naive) == 6 * token);
        CHECK(memcmp(copy, naive, 6 * token) == 0);

        CHECK_OK(rad_kv_pool_get_cpu_copy(pool, NULL, 0, NULL, 0));
        CHECK(rad_kv_pool_get_cpu_copy(pool, slots, 2, copy, token) == RAD_E_INVAL);
        CHECK(rad_kv_pool_get_cpu_copy(pool, slots, 1, copy, 0) == RAD_E_INVAL);
        memset(copy, 0x77, token * 2);
        CHECK(rad_kv_pool_get_cpu_copy(pool, (rad_slot[]){1, SLOTS}, 2, copy, 2 * token) ==
              RAD_E_INVAL);
        CHECK(rad_kv_pool_get_cpu_copy(pool, (rad_slot[]){1, -1}, 2, copy, 2 * token) ==
              RAD_E_INVAL);
        CHECK(copy[0] == 0x77 && rad_kv_pool_load_cpu_copy(pool, (rad_slot[]){1, SLOTS}, 2, copy,
                                                           2 * token) == RAD_E_INVAL);
        rad_token_to_kv_pool_destroy(pool);
    }
}

/* K, V and the scales of a token side by side in one record, records with a gap between. */
typedef struct record_layout {
    size_t v_at, k_scale_at, v_scale_at, stride;
} record_layout;

static record_layout layout_for(uint32_t dtype)
{
    record_layout l = {.v_at = K_NUMBERS * dtype_size[dtype]};
    l.k_scale_at = (l.v_at + V_NUMBERS * dtype_size[dtype] + 3) & ~(size_t)3;
    l.v_scale_at = l.k_scale_at + HEADS * 4;
    l.stride = l.v_scale_at + HEADS * 4 + 8;
    return l;
}

TEST(the_callers_memory_works_like_the_pools_own)
{
    uint64_t seed = test_seed(), state = seed, again = seed;
    for (uint32_t dtype = RAD_F32; dtype <= RAD_I8; dtype++) {
        record_layout l = layout_for(dtype);
        char *memory[LAYERS];
        rad_kv_buffers buffers[LAYERS];
        for (int i = 0; i < LAYERS; i++) {
            memory[i] = malloc(SLOTS * l.stride);
            memset(memory[i], 0x5a, SLOTS * l.stride);
            buffers[i] = (rad_kv_buffers){.k = memory[i],
                                          .v = memory[i] + l.v_at,
                                          .k_stride = l.stride,
                                          .v_stride = l.stride};
            if (dtype != RAD_I8) continue;
            buffers[i].k_scale = (float *)(void *)(memory[i] + l.k_scale_at);
            buffers[i].v_scale = (float *)(void *)(memory[i] + l.v_scale_at);
            buffers[i].k_scale_stride = buffers[i].v_scale_stride = l.stride;
        }
        rad_token_to_kv_pool_params p = params_for(dtype);
        rad_token_to_kv_pool *own = make(&p);
        p.buffers = buffers;
        rad_token_to_kv_pool *theirs = make(&p);
        CHECK(!rad_kv_pool_params(theirs)->buffers);
        memset(buffers, 0xff, sizeof buffers); /* the array was copied */
        CHECK(memory[1][0] == 0x5a);           /* and the memory not touched */
        CHECK(rad_kv_pool_is_packed(own) && !rad_kv_pool_is_packed(theirs));
        CHECK(kv_key_buffer(theirs, 1) == memory[1]);
        for (rad_slot slot = 0; slot < SLOTS; slot++) {
            fill(own, 0, slot, &state);
            fill(theirs, 0, slot, &again);
        }
        rad_slot slots[SLOTS];
        float k[2][SLOTS][K_NUMBERS], v[2][SLOTS][V_NUMBERS];
        static char copy[2][SLOTS * 400];
        size_t bytes = SLOTS * rad_kv_pool_bytes_per_token(&p);
        for (int i = 0; i < SLOTS; i++)
            slots[i] = i;
        for (int side = 0; side < 2; side++) {
            rad_token_to_kv_pool *pool = side ? theirs : own;
            CHECK_OK(rad_kv_pool_get_kv(pool, 1, slots, SLOTS, k[side][0], v[side][0]));
            CHECK_OK(rad_kv_pool_get_cpu_copy(pool, slots, SLOTS, copy[side], bytes));
        }
        CHECK(memcmp(k[0], k[1], sizeof k[0]) == 0 && memcmp(v[0], v[1], sizeof v[0]) == 0);
        CHECK(memcmp(copy[0], copy[1], bytes) == 0);
        CHECK(naive_copy(theirs, slots, SLOTS, copy[1]) == bytes);
        CHECK(memcmp(copy[0], copy[1], bytes) == 0);
        for (int i = 0; i < SLOTS; i++) /* nothing was written between the records */
            for (int gap = 0; gap < 8; gap++)
                CHECK(memory[0][(size_t)(i + 1) * l.stride - 8 + (size_t)gap] == 0x5a);

        /* Slots move between pools of the same shape, whoever's memory it is. */
        memset(memory[0], 0, SLOTS * l.stride);
        CHECK_OK(rad_kv_pool_load_cpu_copy(theirs, slots, SLOTS, copy[0], bytes));
        CHECK_OK(rad_kv_pool_get_kv(theirs, 0, slots, SLOTS, k[0][0], v[0][0]));
        CHECK_OK(rad_kv_pool_get_kv(own, 0, slots, SLOTS, k[1][0], v[1][0]));
        CHECK(memcmp(k[0], k[1], sizeof k[0]) == 0 && memcmp(v[0], v[1], sizeof v[0]) == 0);
        rad_token_to_kv_pool_destroy(own);
        rad_token_to_kv_pool_destroy(theirs);
        for (int i = 0; i < LAYERS; i++)
            free(memory[i]); /* still ours */
    }
}

TEST(buffers_that_cannot_be_right_are_refused_by_name)
{
    static float memory[2][SLOTS * 64];
    rad_token_to_kv_pool_params p = params_for(RAD_I8);
    p.start_layer = 7;
    rad_kv_buffers good[LAYERS], b[LAYERS];
    for (int i = 0; i < LAYERS; i++)
        good[i] = (rad_kv_buffers){.k = memory[0],
                                   .v = memory[1],
                                   .k_scale = memory[0] + SLOTS * 32,
                                   .v_scale = memory[1] + SLOTS * 32};
    p.buffers = b;
    rad_token_to_kv_pool *pool = NULL;
    rad_error err;

    memcpy(b, good, sizeof b);
    pool = make(&p);
    CHECK(rad_kv_pool_is_packed(pool)); /* packed memory of the caller's */
    rad_token_to_kv_pool_destroy(pool);

#define REFUSED(change, words)                                                                     \
    do {                                                                                           \
        memcpy(b, good, sizeof b);                                                                 \
        change;                                                                                    \
        CHECK(rad_token_to_kv_pool_create(NULL, &p, &pool, &err) == RAD_E_INVAL && !pool);         \
        CHECKF(strstr(err.text, words) != NULL, "%s\n", err.text);                                 \
    } while (0)
    REFUSED(b[1].k = NULL, "K of layer 8 is missing");
    REFUSED(b[0].v = NULL, "V of layer 7 is missing");
    REFUSED(b[1].k_scale = NULL, "K's scales of layer 8 is missing");
    REFUSED(b[1].v_scale = NULL, "V's scales of layer 8 is missing");
    REFUSED(b[1].v_stride = V_NUMBERS - 1, "V of layer 8 has a stride shorter");
    REFUSED(b[1].k_scale_stride = 4, "K's scales of layer 8 has a stride shorter");
    REFUSED(b[1].k_stride = SIZE_MAX, "larger than an address space");
    REFUSED(b[1].v_scale = (float *)(void *)((char *)memory + 2), "not aligned");
    p.dtype = RAD_F32;
    REFUSED((void)0, "only int8");
    memset(&good[0].k_scale, 0, 2 * sizeof(float *));
    memset(&good[1].k_scale, 0, 2 * sizeof(float *));
    REFUSED(b[0].k = (char *)memory + 2, "K of layer 7 is not aligned");
    REFUSED(b[0].k_stride = K_NUMBERS * 4 + 2, "K of layer 7 is not aligned");
#undef REFUSED
}

static uint32_t waited[16];
static uint32_t num_waited;

static void note_wait(void *user, uint32_t layer)
{
    CHECK(user == waited);
    if (num_waited < 16) waited[num_waited++] = layer;
}

static jmp_buf panicked;

static void jump(void *user, const char *message)
{
    (void)user;
    (void)message;
    longjmp(panicked, 1);
}

TEST(a_stage_names_layers_by_their_number_in_the_model)
{
    test_env t;
    rad_env env = test_env_init(&t);
    env.panic = NULL;
    rad_token_to_kv_pool_params p = params_for(RAD_BF16);
    p.start_layer = 30;
    rad_token_to_kv_pool *pool = NULL;
    CHECK_OK(rad_token_to_kv_pool_create(&env, &p, &pool, NULL));
    CHECK_OK(rad_kv_pool_add_wait(pool, note_wait, waited, NULL));
    num_waited = 0;
    uint64_t state = 5;
    fill(pool, 30, 9, &state);
    CHECK(num_waited == 0); /* writing waits for nobody */
    float k[K_NUMBERS];
    rad_slot slot = 9;
    CHECK_OK(rad_kv_pool_get_kv(pool, 31, &slot, 1, k, NULL));
    CHECK(num_waited == 1 && waited[0] == 31);
    CHECK(rad_kv_pool_get_kv(pool, 29, &slot, 1, k, NULL) == RAD_E_INVAL);
    CHECK(rad_kv_pool_get_kv(pool, 32, &slot, 1, k, NULL) == RAD_E_INVAL);
    CHECK(rad_kv_pool_get_kv(pool, 0, &slot, 1, k, NULL) == RAD_E_INVAL);
    rad_kv_buffers b;
    CHECK(rad_kv_pool_get_buffers(pool, 29, &b) == RAD_E_INVAL);
    CHECK_OK(rad_kv_pool_get_buffers(pool, 30, &b));
    CHECK(kv_key_buffer(pool, 30) == b.k && kv_value_buffer(pool, 30) == b.v);
    char copy[400];
    num_waited = 0;
    CHECK_OK(rad_kv_pool_get_cpu_copy(pool, &slot, 1, copy, rad_kv_pool_bytes_per_token(&p)));
    CHECK(num_waited == 2 && waited[0] == 30 && waited[1] == 31);
    num_waited = 0;
    CHECK_OK(rad_kv_pool_load_cpu_copy(pool, &slot, 1, copy, rad_kv_pool_bytes_per_token(&p)));
    CHECK(num_waited == 0);
    rad_token_to_kv_pool_destroy(pool);
    CHECK(t.bytes == 0);

    rad_error err;
    p.start_layer = UINT32_MAX;
    CHECK(rad_token_to_kv_pool_create(NULL, &p, &pool, &err) == RAD_E_LIMIT && !pool);
}

/* A layer or slot that is not the pool's would write elsewhere: it panics, in release too. */
TEST(writing_outside_the_pool_panics)
{
    rad_env env = {.struct_size = sizeof env, .panic = jump};
    rad_token_to_kv_pool_params p = params_for(RAD_F8_E4M3);
    p.start_layer = 1;
    rad_token_to_kv_pool *pool = NULL;
    CHECK_OK(rad_token_to_kv_pool_create(&env, &p, &pool, NULL));
    const float k[K_NUMBERS] = {0}, v[V_NUMBERS] = {0};
    const struct {
        uint32_t layer;
        rad_slot slot;
    } wrong[] = {{0, 1}, {3, 1}, {1, SLOTS}, {1, -1}};
    for (volatile size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        volatile bool came_back = false;
        if (setjmp(panicked) == 0) {
            rad_kv_pool_set_kv_buffer(pool, wrong[i].layer, &wrong[i].slot, 1, k, v);
            came_back = true;
        }
        CHECK(!came_back);
    }
    rad_token_to_kv_pool_destroy(pool);
}

TEST(padded_rows_write_to_the_dummy_page_and_disturb_nobody)
{
    rad_token_to_kv_pool_params p = params_for(RAD_I8);
    rad_token_to_kv_pool *pool = make(&p);
    size_t bytes = PAGE * rad_kv_pool_bytes_per_token(&p);
    uint64_t state = 3;
    char before[PAGE * 400], after[PAGE * 400];
    fill(pool, 0, PAGE, &state);
    CHECK_OK(rad_kv_pool_get_page(pool, 1, before, bytes));
    for (rad_slot slot = 0; slot < PAGE; slot++)
        fill(pool, 0, slot, &state);
    CHECK_OK(rad_kv_pool_get_page(pool, 1, after, bytes));
    CHECK(memcmp(before, after, bytes) == 0);
    rad_token_to_kv_pool_destroy(pool);
}

/* Of 1 MB and more a buffer, scales too: what is smaller is there from the start. */
TEST(memory_is_there_once_it_was_asked_for_and_holds_what_it_held)
{
    NEED_POPULATE();
    enum { MANY = 1 << 17, ASKED = 10000, FROM = 30000, WIDE = 8 };
    for (uint32_t dtype = RAD_F32; dtype <= RAD_I8; dtype++) {
        rad_token_to_kv_pool_params p = {.struct_size = sizeof p,
                                         .num_pages = MANY - 1,
                                         .num_layers = LAYERS,
                                         .start_layer = 5,
                                         .num_kv_heads = HEADS,
                                         .head_dim = WIDE,
                                         .dtype = dtype};
        rad_token_to_kv_pool *pool = make(&p);
        rad_kv_buffers b;
        CHECK_OK(rad_kv_pool_get_buffers(pool, 6, &b));
        float k[HEADS * WIDE], v[HEADS * WIDE], k_back[HEADS * WIDE], v_back[HEADS * WIDE];
        for (int i = 0; i < HEADS * WIDE; i++)
            k[i] = (float)i, v[i] = (float)-i;
        const rad_slot slot = FROM + 7, behind = FROM + ASKED;
        CHECK(resident_share((char *)b.k + FROM * b.k_stride, ASKED * b.k_stride) == 0);
        CHECK(resident_share((char *)b.v + FROM * b.v_stride, ASKED * b.v_stride) == 0);
        rad_kv_pool_set_kv_buffer(pool, 6, &slot, 1, k, v);
        CHECK_OK(rad_kv_pool_get_kv(pool, 6, &slot, 1, k, v)); /* as they are stored */

        CHECK_OK(rad_kv_pool_populate(pool, 6, FROM, ASKED));
        CHECK(resident_share((char *)b.k + FROM * b.k_stride, ASKED * b.k_stride) == 1);
        CHECK(resident_share((char *)b.v + FROM * b.v_stride, ASKED * b.v_stride) == 1);
        for (int side = 0; side < 2 && b.k_scale; side++) {
            const char *scales = (char *)(side ? b.v_scale : b.k_scale);
            CHECK(resident_share(scales + FROM * b.k_scale_stride, ASKED * b.k_scale_stride) == 1);
            CHECK(resident_share(scales, (MANY - 1) * b.k_scale_stride) < 1);
        }
        CHECK_OK(rad_kv_pool_get_kv(pool, 6, &slot, 1, k_back, v_back));
        CHECK(memcmp(k, k_back, sizeof k) == 0 && memcmp(v, v_back, sizeof v) == 0);
        memset(k, 0, sizeof k);
        CHECK_OK(rad_kv_pool_get_kv(pool, 6, &behind, 1, k_back, NULL));
        CHECK(memcmp(k, k_back, sizeof k) == 0);

        CHECK_OK(rad_kv_pool_populate(pool, 5, MANY, 0));
        CHECK_OK(rad_kv_pool_populate(pool, 5, 0, MANY));
        CHECK(rad_kv_pool_populate(pool, 5, 0, MANY + 1) == RAD_E_INVAL);
        CHECK(rad_kv_pool_populate(pool, 5, MANY + 1, 0) == RAD_E_INVAL);
        CHECK(rad_kv_pool_populate(pool, 5, 1, SIZE_MAX) == RAD_E_INVAL);
        CHECK(rad_kv_pool_populate(pool, 4, 0, 1) == RAD_E_INVAL);
        CHECK(rad_kv_pool_populate(pool, 7, 0, 1) == RAD_E_INVAL);
        rad_token_to_kv_pool_destroy(pool);
    }
}

TEST(memory_of_the_callers_with_gaps_is_asked_for_to_its_last_row)
{
    NEED_POPULATE();
    enum { ROWS = 3, GAP = 1 << 16 };
    const size_t bytes = (ROWS - 1) * GAP + K_NUMBERS * sizeof(float);
    char *memory =
        mmap(NULL, 2 * ROWS * GAP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    CHECK(munmap(memory + ROWS * GAP, ROWS * GAP) == 0); /* and no byte behind it */
    char *k = memory + ROWS * GAP - bytes;
    k -= (uintptr_t)k % 64;
    float v[ROWS * V_NUMBERS];
    rad_kv_buffers b = {.k = k, .v = v, .k_stride = GAP};
    rad_token_to_kv_pool_params p = params_for(RAD_F32);
    p.num_layers = 1, p.page_size = 1, p.num_pages = ROWS - 1;
    p.buffers = &b;
    rad_token_to_kv_pool *pool = make(&p);
    CHECK_OK(rad_kv_pool_populate(pool, 0, 0, ROWS));
    CHECK(resident_share(k + (ROWS - 1) * GAP, K_NUMBERS * sizeof(float)) == 1);
    rad_token_to_kv_pool_destroy(pool);
    CHECK(munmap(memory, ROWS * GAP) == 0);
}

TEST(an_older_programs_params_still_work)
{
    /* What the struct was before kind and the rest: the bytes behind are not ours to read. */
    size_t old = offsetof(rad_token_to_kv_pool_params, kind);
    rad_token_to_kv_pool_params *p = malloc(old);
    rad_token_to_kv_pool_params full = params_for(RAD_BF16);
    full.struct_size = old;
    memcpy(p, &full, old);
    CHECK(rad_kv_pool_bytes_per_token(p) == LAYERS * (K_NUMBERS + V_NUMBERS) * 2);
    rad_token_to_kv_pool *pool = make(p);
    CHECK(rad_kv_pool_params(pool)->struct_size == sizeof(rad_token_to_kv_pool_params));
    CHECK(rad_kv_pool_params(pool)->kind == RAD_KV_MHA && rad_kv_pool_is_packed(pool));
    rad_token_to_kv_pool_destroy(pool);
    free(p);
}

TEST(create_survives_every_allocation_failing_in_every_dtype)
{
    for (uint32_t dtype = RAD_F32; dtype <= RAD_I8; dtype++) {
        rad_token_to_kv_pool_params p = params_for(dtype);
        rad_token_to_kv_pool *pool = NULL;
        for (long n = 0; !pool; n++) {
            test_env t;
            rad_env env = test_env_failing_at(&t, n);
            rad_status status = rad_token_to_kv_pool_create(&env, &p, &pool, NULL);
            CHECK(status == (pool ? RAD_OK : RAD_E_NOMEM));
            rad_token_to_kv_pool_destroy(pool);
            CHECK(t.bytes == 0);
        }
    }
}

TEST_MAIN()
