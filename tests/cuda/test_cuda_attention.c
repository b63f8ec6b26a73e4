/* Attention's kernels, emulated: what they compute is attention, and a query's bits depend on the
 * query and its context alone. */
#include "cuda_rig.h"

/* A kernel that leaves out its barrier number `left_out`, of those that its source has, and notes
 * which it came to. */
static unsigned left_out = ~0u;
static bool came_to[64];
#include "device/kernels/dialect.h"
#undef SYNC_BLOCK
#define SYNC_BLOCK()                                                                               \
    do {                                                                                           \
        const unsigned barrier = __COUNTER__ - FIRST_BARRIER;                                      \
        came_to[barrier] = true;                                                                   \
        if (left_out != barrier) emulated_sync_block(EMULATED_HERE);                               \
    } while (0)
enum { FIRST_BARRIER = __COUNTER__ + 1 };
#include "cuda/kernels/attention.h"
enum { BARRIERS = __COUNTER__ - FIRST_BARRIER };

KERNEL(attention_torn_32, ATTN_THREADS, attention_args)
{
    SHARED_DYNAMIC(u8, shared);
    attention(&a, shared, 32, 0);
}

KERNEL(attention_torn_64, ATTN_THREADS, attention_args)
{
    SHARED_DYNAMIC(u8, shared);
    attention(&a, shared, 64, 0);
}

KERNEL(attention_torn_64_f8, ATTN_THREADS, attention_args)
{
    SHARED_DYNAMIC(u8, shared);
    attention(&a, shared, 64, 1);
}

KERNEL(attention_torn_256, ATTN_THREADS, attention_args)
{
    SHARED_DYNAMIC(u8, shared);
    attention(&a, shared, 256, 0);
}

#include "attention_rig.h"

TEST(numbers_are_those_of_attention)
{
    cuda_rig rig = rig_open();
    static const float sinks[8] = {0.5f, -3, 9, 0, 1, 2, 3, 4};
    static const struct {
        uint32_t heads, kv_heads, dim, window, sinks;
        float cap;
    } cases[] = {{4, 2, 16, 0, 0, 0}, {8, 2, 32, 0, 0, 0},    {2, 1, 64, 0, 0, 0},
                 {3, 1, 96, 0, 0, 0}, {4, 1, 128, 300, 1, 0}, {2, 1, 256, 0, 0, 30},
                 {4, 2, 32, 70, 1, 5}};
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        world w = plain(cases[i].heads, cases[i].kv_heads, cases[i].dim, cases[i].window);
        w.cap = cases[i].cap;
        w.sinks = cases[i].sinks ? sinks : NULL;
        w.rig = &rig;
        world_create(&w, 1);
        for (uint32_t parts = 0; parts <= 100; parts += 100) {
            step s = {.num_reqs = 3,
                      .row = {0, 1, 2},
                      .prefix = {600, 0, 300},
                      .tokens = {1, 70, 7},
                      .max_parts = parts,
                      .shared_bytes = (parts ? 163 : 227) << 10, /* an A100's, an H100's */
                      .model = TENSOR_CORE_SM90};
            uint16_t *out = run(&w, &s);
            double error = error_of(&w, &s, out);
            CHECKF(error < 6e-3, "dim %u, %u parts: %g\n", cases[i].dim, s.num_parts, error);
            free(out);
        }
        world_destroy(&w);
    }
    rig_close(&rig);
}

/* Prompts, with and without parts, beside others, alone, in groups, token by token; other blocks,
 * stages, schedules and slots. */
TEST(bits_are_of_a_query_and_its_context)
{
    cuda_rig rig = rig_open();
    static const float sinks[4] = {0.5f, -3, 9, 0};
    uint32_t long_units = 0;
    for (uint32_t variant = 0; variant < test_scale(3, 12); variant++) {
        world w = plain(4, variant % 3 == 2 ? 1 : 2, variant % 4 == 3 ? 96 : 32,
                        variant % 2 ? 200 + 37 * variant : 0);
        w.cap = variant == 1 ? 4 : 0;
        w.sinks = variant == 1 ? sinks : NULL;
        w.seed = variant;
        w.rig = &rig;
        world_create(&w, 1);
        tensor_core_model model = variant == 2 ? TENSOR_CORE_SM80 : TENSOR_CORE_SM90;
        step prompt = {.num_reqs = 2,
                       .row = {0, 2},
                       .prefix = {630, 590},
                       .tokens = {120, 40},
                       .model = model};
        uint16_t *want = run(&w, &prompt);
        CHECK(prompt.num_parts == 0);

        world other = w;
        other.page = 16;
        world_create(&other, 2);
        step cuts[] = {
            {.num_reqs = 2,
             .row = {2, 0},
             .prefix = {590, 630},
             .tokens = {40, 120},
             .max_parts = 2000,
             .grid = 400,
             .order = 1},
            {.num_reqs = 1, .row = {0}, .prefix = {749}, .tokens = {1}, .max_parts = 9, .order = 7},
            {.num_reqs = 3,
             .row = {0, 2, 1},
             .prefix = {639, 600, 704},
             .tokens = {1, 5, 2},
             .max_parts = 90,
             .grid = 300,
             .shared_bytes = 99 << 10},
            {.num_reqs = 3,
             .row = {2, 0, 1},
             .prefix = {629, 710, 707},
             .tokens = {1, 3, 1},
             .max_parts = 90,
             .grid = 2,
             .num_groups = 2,
             .group_reqs = {2, 1, 0},
             .groups = {{0, 512, 0, 3}, {512, 704, 0, 2}}},
            {.num_reqs = 3,
             .row = {0, 1, 2},
             .prefix = {704, 704, 592},
             .tokens = {40, 20, 14},
             .max_parts = 900,
             .grid = 99,
             .num_groups = 1,
             .group_reqs = {1, 0, 2},
             .groups = {{0, 512, 0, 3}}},
        };
        for (size_t i = 0; i < RAD_COUNT(cuts); i++) {
            cuts[i].model = model;
            uint16_t *out = run(i % 2 ? &other : &w, &cuts[i]);
            CHECK(cuts[i].num_parts || i == 1 ||
                  w.shape.window); /* or this would compare a way with itself */
            long_units += cuts[i].long_units;
            CHECKF(tokens_that_differ(&w, &cuts[i], out, &prompt, want) == 0,
                   "variant %u, cut %zu\n", variant, i);
            free(out);
        }
        free(want);
        world_destroy(&w);
        world_destroy(&other);
    }
    CHECK(long_units);
    rig_close(&rig);
}

/* Each barrier is needed, where warps share a tile or where not: without it some order of the warps
 * gives other numbers. */
TEST(a_barrier_that_is_left_out_shows)
{
    cuda_rig rig = {0};
    static const struct {
        const char *name;
        uint32_t dim, kv, shared_kb;
    } kernels[] = {{"attention_torn_32", 32, ATTN_KV_BF16, 227},
                   {"attention_torn_64", 64, ATTN_KV_BF16, 227},
                   {"attention_torn_256", 256, ATTN_KV_BF16, 227},
                   {"attention_torn_64_f8", 64, ATTN_KV_E4M3, 227},
                   {"attention_torn_64_f8", 64, ATTN_KV_E5M2, 48}}; /* has one block of bf16 */
    bool shows[BARRIERS] = {false};
    CHECK(BARRIERS == 12 && BARRIERS < RAD_COUNT(came_to));
    if (getenv("RADISH_TEST_GPU")) return; /* emulated alone: a driver has nothing to add */
    for (size_t k = 0; k < RAD_COUNT(kernels); k++) {
        world w = plain(8, 1, kernels[k].dim, 0);
        w.shape.kv = kernels[k].kv;
        w.rig = &rig;
        world_create(&w, 1);
        step s = {.num_reqs = 3,
                  .row = {0, 1, 2},
                  .prefix = {70, 130, 600},
                  .tokens = {17, 3, 1},
                  .max_parts = 40,
                  .grid = 1,
                  .shared_bytes = kernels[k].shared_kb << 10,
                  .kernel = kernels[k].name};
        memset(came_to, 0, sizeof came_to);
        uint16_t *want = run(&w, &s);
        for (left_out = 0; left_out < BARRIERS; left_out++)
            for (s.order = 0; s.order < 12 && came_to[left_out] && !shows[left_out]; s.order++) {
                uint16_t *out = run(&w, &s);
                shows[left_out] = tokens_that_differ(&w, &s, out, &s, want) != 0;
                free(out);
            }
        left_out = ~0u;
        free(want);
        world_destroy(&w);
    }
    for (uint32_t i = 0; i < BARRIERS; i++)
        CHECKF(shows[i], "barrier %u\n", i);
}

/* ---- plans alone ---- */
enum { MOST_REQS = 24, MOST_NEW = 2000, MOST_PARTS = 4000 };
typedef struct made_batch {
    forward_batch batch;
    uint32_t prefix[MOST_REQS], tokens[MOST_REQS], ends[MOST_REQS], start[MOST_REQS];
    uint32_t members[MOST_REQS], row_of[MOST_NEW], positions[MOST_NEW];
    rad_row rows[MOST_REQS];
    forward_group groups[MOST_REQS];
} made_batch;

/* Requests of any length, some of which share prefixes: all of them one, and halves another. */
static void make_batch(made_batch *b, uint64_t *seed)
{
    uint32_t n = 1 + (uint32_t)(test_random(seed) % MOST_REQS), at = 0, first_end = 0, num = 0;
    bool decode = test_random(seed) % 2;
    if (n > 2 && test_random(seed) % 2) first_end = (uint32_t)(test_random(seed) % 40) * 64;
    uint32_t half = n / 2, second_end = first_end + (uint32_t)(test_random(seed) % 20) * 64;
    for (uint32_t i = 0; i < n; i++) {
        b->tokens[i] = decode ? 1 : 1 + (uint32_t)(test_random(seed) % (MOST_NEW / n));
        b->prefix[i] = second_end + (uint32_t)(test_random(seed) % 3000);
        b->ends[i] = b->prefix[i] + b->tokens[i];
        b->start[i] = at;
        b->rows[i] = (rad_row)(100 + i);
        b->members[i] = i;
        for (uint32_t t = 0; t < b->tokens[i]; t++, at++) {
            b->row_of[at] = i;
            b->positions[at] = b->prefix[i] + t;
        }
    }
    if (first_end) b->groups[num++] = (forward_group){0, first_end, 0, n};
    if (first_end < second_end && half > 1)
        b->groups[num++] = (forward_group){first_end, second_end, 0, half};
    b->batch = (forward_batch){.num_reqs = n,
                               .num_tokens = at,
                               .positions = b->positions,
                               .req_pool_indices = b->rows,
                               .seq_lens = b->ends,
                               .extend_prefix_lens = b->prefix,
                               .extend_seq_lens = b->tokens,
                               .extend_start_loc = b->start,
                               .num_groups = num,
                               .groups = b->groups,
                               .group_reqs = b->members};
}

/* Whether two requests have the same slots at [begin, end). */
static bool same_slots(const made_batch *b, uint32_t x, uint32_t y, uint32_t begin, uint32_t end)
{
    bool same = x == y;
    for (; !same && begin < end; begin++) {
        bool here = false;
        for (uint32_t i = 0; i < b->batch.num_groups; i++) {
            const forward_group *g = &b->groups[i];
            here |= begin >= g->begin && begin < g->end && x < g->count && y < g->count;
        }
        if (!here) return false;
    }
    return true;
}

/* Every token's every span has one unit with its slots, and nothing is planned that no token sees.
 */
TEST(plans_have_each_span_of_a_token_once)
{
    uint64_t seed = test_seed();
    if (getenv("RADISH_TEST_GPU")) return;
    static made_batch b;
    static uint8_t seen[MOST_NEW][64];
    for (uint32_t round = 0; round < test_scale(150, 3000); round++) {
        cuda_attention_shape shape = {8, 2, 64, round % 3 == 2 ? 700 : 0, ATTN_KV_BF16};
        cuda_attention_launch l = cuda_attention_launch_of(&shape, round % 2 ? 132 : 8, 227 << 10);
        make_batch(&b, &seed);
        uint32_t tokens = b.batch.num_tokens, parts = round % 5 ? MOST_PARTS : round;
        cuda_attention_plan plan = {
            .units = malloc(sizeof(attention_unit) * cuda_attention_most_units(tokens, parts)),
            .unit_tokens = malloc(4 * cuda_attention_most_unit_tokens(tokens)),
            .parts_at = malloc(4 * tokens),
            .scratch = malloc(cuda_attention_scratch_bytes(tokens, MOST_REQS, parts)),
            .max_tokens = tokens,
            .max_requests = MOST_REQS,
            .max_parts = parts};
        cuda_attention_plan_make(&plan, &b.batch, &shape, &l);
        CHECK(plan.num_parts <= parts);
        CHECK(plan.num_units <= cuda_attention_most_units(tokens, parts));
        CHECK(plan.num_unit_tokens <= cuda_attention_most_unit_tokens(tokens));

        memset(seen, 0, sizeof seen);
        for (uint32_t i = 0; i < plan.num_units; i++) {
            const attention_unit *u = &plan.units[i];
            uint32_t least = UINT32_MAX, most = 0;
            CHECK(u->count && u->count * 4 <= l.unit_rows && u->begin < u->end);
            CHECK(u->first + u->count <= plan.num_unit_tokens);
            for (uint32_t t = 0; t < u->count; t++) {
                uint32_t token = plan.unit_tokens[u->first + t], last = b.positions[token];
                uint32_t low = shape.window && last >= shape.window ? last - shape.window + 1 : 0;
                least = RAD_MIN(least, low), most = RAD_MAX(most, last);
                CHECK((plan.parts_at[token] == UINT32_MAX) == (u->direct != 0));
                CHECK(same_slots(&b, b.row_of[token], u->slot_row - 100, u->begin, u->end));
                for (uint32_t span = low / ATTN_SPAN; span <= last / ATTN_SPAN; span++) {
                    uint32_t begin = RAD_MAX(low, span * ATTN_SPAN);
                    uint32_t end = RAD_MIN(last + 1, (span + 1) * ATTN_SPAN);
                    if (u->end <= begin || u->begin >= end) continue;
                    CHECK(u->begin <= begin && u->end >= end);
                    seen[token][span]++;
                }
            }
            CHECK(u->begin >= least && u->end <= most + 1);
        }
        for (uint32_t token = 0; token < tokens; token++) {
            uint32_t last = b.positions[token];
            uint32_t low = shape.window && last >= shape.window ? last - shape.window + 1 : 0;
            for (uint32_t span = low / ATTN_SPAN; span <= last / ATTN_SPAN; span++)
                CHECKF(seen[token][span] == 1, "seed %llu\n", (unsigned long long)seed);
        }
        free(plan.units), free(plan.unit_tokens), free(plan.parts_at), free(plan.scratch);
    }
}

TEST_MAIN()
