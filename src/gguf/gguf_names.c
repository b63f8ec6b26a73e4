/* gguf_names.c - a table's names are sorted once, which finds duplicates and lets every lookup be a
 * binary search. Heap sort: no bad input makes it slow.
 *
 * Invariant after init: each name is greater than the one before it in `order`. */
#include "gguf/gguf_names.h"

gguf_shown gguf_show(gguf_str str)
{
    gguf_shown shown = {0};
    size_t n = RAD_MIN(str.len, 64);
    for (size_t i = 0; i < n; i++)
        shown.text[i] = str.data[i] >= 32 && str.data[i] < 127 ? str.data[i] : '?';
    if (n < str.len) memcpy(shown.text + n, "...", 3);
    return shown;
}

/* memcmp order, a prefix before what it begins. */
static int compare(gguf_str a, gguf_str b)
{
    size_t n = RAD_MIN(a.len, b.len);
    int order = n ? memcmp(a.data, b.data, n) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

static gguf_str name_at(const gguf_names *n, uint32_t i)
{
    return *(const gguf_str *)(n->base + n->stride * i);
}

static void sift_down(const gguf_names *n, uint32_t *heap, size_t count, size_t i)
{
    uint32_t moving = heap[i];
    for (size_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && compare(name_at(n, heap[child]), name_at(n, heap[child + 1])) < 0)
            child++;
        if (compare(name_at(n, moving), name_at(n, heap[child])) >= 0) break;
        heap[i] = heap[child];
    }
    heap[i] = moving;
}

rad_status gguf_names_init(gguf_names *n, const rad_env *env, const gguf_str *first, size_t stride,
                           size_t count, const char *what, const uint8_t *file, rad_error *err)
{
    *n = (gguf_names){.base = (const char *)first, .stride = stride, .count = count};
    uint32_t *order = n->order = rad_alloc(env, count * sizeof *order);
    if (!order) return rad_fail(err, RAD_E_NOMEM, "gguf: no memory for %zu names", count);
    for (size_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    for (size_t i = count / 2; i-- > 0;)
        sift_down(n, order, count, i);
    for (size_t end = count - 1; end > 0; end--) {
        uint32_t greatest = order[0];
        order[0] = order[end];
        order[end] = greatest;
        sift_down(n, order, end, 0);
    }
    for (size_t i = 1; i < count; i++) {
        gguf_str name = name_at(n, order[i]);
        if (compare(name_at(n, order[i - 1]), name) != 0) continue;
        if (!file)
            return rad_fail(err, RAD_E_FORMAT, "gguf: %s '%s' is there twice", what,
                            gguf_show(name).text);
        return rad_fail(err, RAD_E_FORMAT, "gguf: %s '%s' is there twice (once at byte %zu)", what,
                        gguf_show(name).text, (size_t)((const uint8_t *)name.data - file));
    }
    return RAD_OK;
}

void gguf_names_fini(gguf_names *n, const rad_env *env)
{
    rad_free(env, n->order, n->count * sizeof *n->order);
}

int64_t gguf_names_find(const gguf_names *n, gguf_str wanted)
{
    size_t low = 0, high = n->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = compare(wanted, name_at(n, n->order[mid]));
        if (order == 0) return n->order[mid];
        if (order < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return -1;
}
