/* record_write.c - a frame in a growing buffer, and tables of pages and namespaces that have a
 * number.
 *
 * A table is two halves: what is asked for enters the newer one, and when that is full, the older
 * one is emptied and becomes the newer. So what was of use lately stays, nothing is moved for it,
 * and a lookup is one or two probes. */
#include "trace/record_write.h"

#define XXH_INLINE_ALL
#include <stdio.h>
#include <xxhash.h>

typedef struct numbered {
    uint64_t hash;
    uint32_t number; /* 0: none */
    uint32_t reserved;
} numbered;

typedef struct half {
    numbered *entries;
    uint32_t count;
} half;

typedef struct numbers {
    half newer, older;
    uint32_t places; /* of a half: a power of two, at most half of them used */
    uint32_t last;   /* the highest number so far */
} numbers;

struct record_writer {
    rad_env env;
    uint8_t *frame; /* RECORD_FRAME_HEAD bytes, then the payload */
    uint64_t len, cap;
    bool closed;      /* its head has been filled in: it waits to be taken */
    uint64_t time_us; /* of the last operation */
    numbers pages, namespaces;
};

/* ---- what has a number ---- */

static bool numbers_init(numbers *n, const rad_env *env, uint32_t known)
{
    n->places = 2;
    while (n->places / 2 < known)
        n->places *= 2;
    n->newer.entries = rad_alloc_sparse(env, n->places * sizeof(numbered));
    n->older.entries = rad_alloc_sparse(env, n->places * sizeof(numbered));
    return n->newer.entries && n->older.entries;
}

static void numbers_fini(numbers *n, const rad_env *env)
{
    const size_t bytes = n->places * sizeof(numbered);
    if (n->newer.entries) rad_free_sparse(env, n->newer.entries, bytes);
    if (n->older.entries) rad_free_sparse(env, n->older.entries, bytes);
}

static numbered *place_of(const numbers *n, const half *h, uint64_t hash)
{
    uint32_t at = (uint32_t)(hash ^ hash >> 32) & (n->places - 1);
    while (h->entries[at].number && h->entries[at].hash != hash)
        at = (at + 1) & (n->places - 1);
    return &h->entries[at];
}

static void enter(numbers *n, uint64_t hash, uint32_t number)
{
    if (n->newer.count == n->places / 2) {
        half emptied = n->older;
        memset(emptied.entries, 0, n->places * sizeof *emptied.entries);
        emptied.count = 0;
        n->older = n->newer;
        n->newer = emptied;
    }
    numbered *p = place_of(n, &n->newer, hash);
    n->newer.count += !p->number;
    *p = (numbered){.hash = hash, .number = number};
}

/* 0: it has none. */
static uint32_t number_of(numbers *n, uint64_t hash)
{
    uint32_t number = place_of(n, &n->newer, hash)->number;
    if (number) return number;
    number = place_of(n, &n->older, hash)->number;
    if (number) enter(n, hash, number); /* so it stays */
    return number;
}

record_writer *record_writer_create(const rad_env *env, uint32_t known_pages)
{
    rad_env full = rad_env_or_default(env);
    record_writer *w = rad_alloc(&full, sizeof *w);
    if (!w) return NULL;
    w->env = full;
    const bool pages =
        numbers_init(&w->pages, &full, known_pages ? known_pages : RECORD_PAGES_KNOWN);
    if (numbers_init(&w->namespaces, &full, RECORD_NAMESPACES_KNOWN) && pages) return w;
    record_writer_destroy(w);
    return NULL;
}

void record_writer_destroy(record_writer *w)
{
    if (!w) return;
    rad_env env = w->env;
    numbers_fini(&w->pages, &env);
    numbers_fini(&w->namespaces, &env);
    rad_free(&env, w->frame, w->cap);
    rad_free(&env, w, sizeof *w);
}

/* ---- bytes ---- */

static bool make_room(record_writer *w, uint64_t bytes)
{
    uint64_t need = w->len + RECORD_FRAME_HEAD + bytes, cap = RAD_MAX(w->cap, 4096u);
    while (cap < need)
        cap *= 2;
    if (cap == w->cap) return true;
    uint8_t *grown = rad_alloc(&w->env, cap);
    if (!grown) return false;
    if (w->len) memcpy(grown, w->frame, w->len);
    rad_free(&w->env, w->frame, w->cap);
    w->frame = grown;
    w->cap = cap;
    return true;
}

static void put_varint(record_writer *w, uint64_t n)
{
    for (; n >= 0x80; n >>= 7)
        w->frame[w->len++] = (uint8_t)(n | 0x80);
    w->frame[w->len++] = (uint8_t)n;
}

static void put_fixed(uint8_t *to, uint64_t n, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        to[i] = (uint8_t)(n >> (8 * i));
}

/* Room for a frame's head, which close_frame fills in, and for what the payload begins with. */
static bool open_frame(record_writer *w, char kind, uint64_t bytes)
{
    w->len = 0;
    if (!make_room(w, bytes + RECORD_FRAME_HEAD + 16)) return false;
    w->len = RECORD_FRAME_HEAD;
    w->closed = false;
    w->frame[w->len++] = (uint8_t)kind;
    return true;
}

static void close_frame(record_writer *w)
{
    uint8_t *payload = w->frame + RECORD_FRAME_HEAD;
    uint64_t bytes = w->len - RECORD_FRAME_HEAD;
    put_fixed(w->frame, bytes, 4);
    put_fixed(w->frame + 4, XXH32(payload, bytes, 0), 4);
    put_fixed(w->frame + 8, XXH32(w->frame, 8, 0), 4);
    w->closed = true;
}

bool record_write_head(record_writer *w, const record_head *head)
{
    size_t count;
    const record_head_line *lines = record_head_lines(&count);
    if (!open_frame(w, 'H', RECORD_MAGIC_BYTES + 64 * count)) return false;
    for (size_t i = 0; i < count; i++) {
        uint64_t value;
        memcpy(&value, (const char *)head + lines[i].at, sizeof value);
        w->len += (uint64_t)snprintf((char *)w->frame + w->len, 64, "%s=%llu\n", lines[i].key,
                                     (unsigned long long)value);
    }
    close_frame(w);
    memmove(w->frame + RECORD_MAGIC_BYTES, w->frame, w->len);
    memcpy(w->frame, RECORD_MAGIC, RECORD_MAGIC_BYTES);
    w->len += RECORD_MAGIC_BYTES;
    return true;
}

static void put_pages(record_writer *w, uint64_t before, const uint64_t *hashes, uint32_t count)
{
    uint32_t last = before ? number_of(&w->pages, before) : 0, i = 0;
    for (uint32_t number; i < count && (number = number_of(&w->pages, hashes[i])); i++)
        last = number;
    put_varint(w, last);
    put_varint(w, count - i);
    for (; i < count; i++) {
        put_fixed(w->frame + w->len, hashes[i], 8);
        w->len += 8;
        enter(&w->pages, hashes[i], ++w->pages.last);
    }
}

bool record_write(record_writer *w, const record_op *op, uint64_t before, const uint64_t *hashes,
                  uint32_t count)
{
    static const record_op one_lost = {.kind = RECORD_LOST, .field = {1}};
    const record_shape *shape = record_shape_of(op->kind);
    const uint64_t time_us = op->time_us;
    if (shape->pages && before && !number_of(&w->pages, before)) {
        op = &one_lost;
        shape = record_shape_of(RECORD_LOST);
    }
    if (!w->len) {
        if (!open_frame(w, 'O', 0)) return false;
        w->time_us = RAD_MAX(w->time_us, time_us);
        put_varint(w, w->time_us);
    }
    if (!make_room(w, RECORD_OP_BYTES + 8 * (uint64_t)count)) return false;
    w->frame[w->len++] = (uint8_t)op->kind;
    put_varint(w, time_us > w->time_us ? time_us - w->time_us : 0);
    w->time_us = RAD_MAX(w->time_us, time_us);
    for (unsigned i = 0; i < shape->fields; i++)
        put_varint(w, op->field[i]);
    if (shape->pages) put_pages(w, before, hashes, count);
    return true;
}

uint32_t record_write_namespace(record_writer *w, uint64_t hash, uint64_t time_us)
{
    if (!hash) return 0;
    uint32_t number = number_of(&w->namespaces, hash);
    if (number) return number;
    const record_op op = {.kind = RECORD_NAMESPACE, .time_us = time_us, .field = {hash}};
    if (!record_write(w, &op, 0, NULL, 0)) return UINT32_MAX;
    number = ++w->namespaces.last;
    enter(&w->namespaces, hash, number);
    return number;
}

void record_write_frame(record_writer *w, const uint8_t **bytes, size_t *len)
{
    if (w->len && !w->closed) close_frame(w);
    *bytes = w->frame;
    *len = w->len;
    w->len = 0;
}

bool record_write_end(record_writer *w, record_end why, const uint8_t **bytes, size_t *len)
{
    if (!open_frame(w, 'E', 0)) return false;
    put_varint(w, why);
    record_write_frame(w, bytes, len);
    return true;
}
