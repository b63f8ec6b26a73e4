/* fuzz_record.c - any bytes as a record (trace/record_format.h).
 *
 *     how, 1 byte | the rest
 *
 * Bit 0 of `how`: the rest is the file as it is. Else it is the operations of one frame, behind a
 * head that is right and under a checksum that is right, since nobody would guess them; bit 1 puts
 * the same frame there twice, bits 2 and 3 choose the page size, 4 to 6
 * sessions, bit 5 a host tier as well, and bit 7 windows, states and retention instead of that.
 *
 * Whatever it says: it is replayed, or an error says why not in words; what it names is read as a
 * trace and played; and it takes no more memory than a small multiple of its bytes and its head
 * account for. */
#include "replay/replay_record.h"
#include "replay/simulate.h"
#include "replay/trace_budget.h"
#include "trace/record_write.h"

#define XXH_INLINE_ALL
#include <stdlib.h>
#include <xxhash.h>

enum { MOST = 1 << 14, MEMORY = 64 << 20 };

static uint8_t file[4 * MOST];

static size_t append_frame(size_t at, char kind, const uint8_t *bytes, size_t len)
{
    uint8_t *f = file + at;
    const uint32_t payload = (uint32_t)(len + 2), zero = 0;
    f[RECORD_FRAME_HEAD] = (uint8_t)kind;
    f[RECORD_FRAME_HEAD + 1] = (uint8_t)zero; /* its time, or why it ends */
    if (len) memcpy(f + RECORD_FRAME_HEAD + 2, bytes, len);
    const uint32_t sum = XXH32(f + RECORD_FRAME_HEAD, payload, 0);
    memcpy(f, &payload, 4);
    memcpy(f + 4, &sum, 4);
    const uint32_t of_head = XXH32(f, 8, 0);
    memcpy(f + 8, &of_head, 4);
    return at + RECORD_FRAME_HEAD + payload;
}

static size_t seal(uint8_t how, const uint8_t *data, size_t size)
{
    static const uint32_t page_sizes[] = {1, 2, 16, 64};
    const record_head head = {.max_total_tokens = 256,
                              .page_size = page_sizes[how >> 2 & 3],
                              .max_rows = 8,
                              .row_tokens = 4096,
                              .max_sessions = how >> 4 & 3,
                              .streaming_sessions = how >> 6 & 1,
                              .retention = how >> 7,
                              .window = how >> 7 ? 128 : 0,
                              .window_tokens = how >> 7 ? 192 : 0,
                              .states = how >> 7 ? 8 : 0,
                              .host_tokens = how >> 7 || !(how & 32) ? 0 : 512,
                              .write_policy = how >> 4 & 1,
                              .load_back_threshold = 1,
                              .max_pinned_tokens = 64};
    const uint8_t *bytes;
    size_t len;
    record_writer *w = record_writer_create(NULL, 4);
    if (!w || !record_write_head(w, &head)) abort();
    record_write_frame(w, &bytes, &len);
    memcpy(file, bytes, len);
    record_writer_destroy(w);
    len = append_frame(len, 'O', data, size);
    if (how & 2) len = append_frame(len, 'O', data, size);
    return append_frame(len, 'E', NULL, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > MOST) return 0;
    const uint8_t *bytes = data + 1;
    size_t len = size - 1;
    if (!(*data & 1)) {
        len = seal(*data, bytes, len);
        bytes = file;
    }
    trace_budget budget;
    rad_env env = trace_budget_env(&budget, NULL, MEMORY);
    rad_error err = {0};
    replay_result r;
    trace *t = NULL;
    rad_status status = replay_record(&env, bytes, len, &r, &err);
    if (status > 0 || (status < 0 && !err.text[0]) || budget.used) abort();
    if (trace_is_record(bytes, len) && trace_parse(&env, bytes, len, &t, &err) == RAD_OK) {
        simulate_result s;
        const simulate_params p = {.capacity_elements = 64};
        (void)simulate(&env, t, &p, &s, &err);
        if (s.requests > trace_num_requests(t) || s.hit_tokens > s.prompt_tokens) abort();
    }
    trace_free(t);
    if (budget.used) abort();
    return 0;
}
