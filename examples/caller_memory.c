/* caller_memory.c - KV memory that the engine owns.
 *
 * An engine has its K/V where its kernels want them: on a device, in a mapped file, in a
 * layout of its own. radish does not need them moved. Here one block holds for each slot
 * all layers, K beside V:
 *
 *     slot s   | L0 K | L0 V | L1 K | L1 V |     f16, HEADS * DIM numbers each
 *
 * and the pool is told where each layer begins and how far slots are apart. It then
 * converts, copies and moves pages there; the engine's kernel reads the same bytes
 * without asking anybody. The pool allocates its description, no slot. */
#include <radish/radish.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4, PAGES = 8, SLOTS = (PAGES + 1) * PAGE, LAYERS = 2, HEADS = 2, DIM = 8 };
enum { WIDTH = HEADS * DIM, SLOT_NUMBERS = LAYERS * 2 * WIDTH };

static void must(rad_status status, const char *what)
{
    if (status == RAD_OK) return;
    fprintf(stderr, "%s: %s\n", what, rad_status_name(status));
    exit(1);
}

/* Everything that radish allocates goes through here, too. */
static size_t library_bytes;

static void *counted_alloc(void *user, size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (memory) *(size_t *)user += bytes;
    return memory;
}

static void counted_free(void *user, void *memory, size_t bytes)
{
    *(size_t *)user -= bytes;
    free(memory);
}

/* Stands for the engine's kernel: it knows the layout and reads the block itself. */
static uint16_t kernel_reads_key(const uint16_t *block, rad_slot slot, uint32_t layer, uint32_t i)
{
    return block[(size_t)slot * SLOT_NUMBERS + layer * 2 * WIDTH + i];
}

int main(void)
{
    uint16_t *block = calloc(SLOTS, SLOT_NUMBERS * sizeof *block);
    if (!block) return 1;

    rad_kv_buffers layers[LAYERS];
    memset(layers, 0, sizeof layers);
    for (int l = 0; l < LAYERS; l++) {
        layers[l].k = block + l * 2 * WIDTH;
        layers[l].v = block + l * 2 * WIDTH + WIDTH;
        layers[l].k_stride = layers[l].v_stride = SLOT_NUMBERS * sizeof *block; /* bytes */
    }
    rad_env env = {.struct_size = sizeof env,
                   .user = &library_bytes,
                   .alloc = counted_alloc,
                   .free = counted_free};
    rad_token_to_kv_pool_params params = {.struct_size = sizeof params,
                                          .num_pages = PAGES,
                                          .page_size = PAGE,
                                          .num_layers = LAYERS,
                                          .num_kv_heads = HEADS,
                                          .head_dim = DIM,
                                          .dtype = RAD_F16,
                                          .buffers = layers};
    rad_token_to_kv_pool *pool;
    rad_error err;
    if (rad_token_to_kv_pool_create(&env, &params, &pool, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    printf("%zu bytes of K/V are the engine's, %zu bytes are radish's\n",
           SLOTS * SLOT_NUMBERS * sizeof *block, library_bytes);

    /* Page 2 is written through the pool (f32 becomes f16) ... */
    rad_slot slots[PAGE];
    float k[PAGE * WIDTH], v[PAGE * WIDTH];
    for (int i = 0; i < PAGE; i++)
        slots[i] = 2 * PAGE + i;
    for (int i = 0; i < PAGE * WIDTH; i++) {
        k[i] = 1.0f;
        v[i] = -2.0f;
    }
    for (uint32_t l = 0; l < LAYERS; l++)
        rad_kv_pool_set_kv_buffer(pool, l, slots, PAGE, k, v);

    /* ... read by the engine where it lies: 1.0 is 0x3c00 in f16 ... */
    int right = !rad_kv_pool_is_packed(pool);
    for (uint32_t i = 0; i < WIDTH; i++)
        right = right && kernel_reads_key(block, slots[1], 1, i) == 0x3c00;

    /* ... which agrees with what radish reads there (1.0 and -2.0 are exact in f16) ... */
    float k_read[WIDTH], v_read[WIDTH];
    must(rad_kv_pool_get_kv(pool, 1, &slots[1], 1, k_read, v_read), "get kv");
    for (uint32_t i = 0; i < WIDTH; i++)
        right = right && k_read[i] == 1.0f && v_read[i] == -2.0f;

    /* ... and moved to page 5 by way of a buffer, as a tier or a swap would. */
    size_t page_bytes = PAGE * rad_kv_pool_bytes_per_token(&params);
    void *copy = malloc(page_bytes);
    if (!copy) return 1;
    must(rad_kv_pool_get_page(pool, 2, copy, page_bytes), "get page");
    must(rad_kv_pool_set_page(pool, 5, copy, page_bytes), "set page");
    right = right &&
            memcmp(block + (size_t)2 * PAGE * SLOT_NUMBERS, block + (size_t)5 * PAGE * SLOT_NUMBERS,
                   PAGE * SLOT_NUMBERS * sizeof *block) == 0;

    /* The pool goes, the memory stays. */
    rad_token_to_kv_pool_destroy(pool);
    right = right && library_bytes == 0 && kernel_reads_key(block, 5 * PAGE, 0, 0) == 0x3c00;
    printf("page 5 holds what page 2 was given: %s\n", right ? "yes" : "NO");
    free(copy);
    free(block);
    return right ? 0 : 1;
}
