/* record_read.c - frames, operations, and the pages that they name.
 *
 *     number   1   2   3   4   5   6        in the order of the file
 *     parent   0   1   2   2   4   1        the page before it, of its chain
 *     first    1   1   1   4   4   6        where its run begins: 1 2 3, 4 5, 6
 *     page     1   2   3   4   5   2        the first number with the same hash: 6 is 2 again
 *
 * New pages of an operation have numbers in a row and follow each other, so a chain is a few runs.
 * A number is at least as deep as its parent's plus one, and parents come before: no circles. */
#include "trace/record_read.h"

#include "base/hash_key.h"
#include "base/map.h"

#define XXH_INLINE_ALL
#include <stdlib.h>
#include <xxhash.h>

enum { FIRST_PAGES = 1 << 10, MOST_PAGES = INT32_MAX / 2, LINE_BYTES = 64 };

typedef struct page_entry {
    uint64_t hash;
    uint32_t parent, first, depth, page;
} page_entry;

struct record_reader {
    rad_env env;
    const uint8_t *bytes;
    uint64_t size;
    record_head head;
    uint64_t frame;   /* where the frame begins that is being read, */
    uint64_t at, end; /* the next byte in it, and behind its payload */
    uint64_t time_us, num_ops, lost;
    page_entry *pages; /* [cap], from 1 on */
    uint64_t num_pages, cap;
    struct namespace_entry {
        uint64_t hash;
        uint32_t number; /* the first one with this hash */
        uint32_t reserved;
    } * names; /* [names_cap], from 1 on */
    uint64_t num_names, names_cap;
    map by_name; /* of namespaces, */
    map by_hash; /* and of pages. Hashes are a stranger's: under a secret of ours */
    hash_key secret;
    record_end how;
    bool ended;
};

/* ---- frames ---- */

/* What is before a damaged frame is good, and a file that is cut there says of itself that it is
 * cut. */
static rad_status bad_frame(const record_reader *r, rad_error *err)
{
    const unsigned long long at = r->frame;
    if (at == RECORD_MAGIC_BYTES)
        return rad_fail(err, RAD_E_FORMAT, "its head is damaged: its checksum is wrong");
    return rad_fail(err, RAD_E_FORMAT,
                    "the frame at byte %llu is damaged: its checksum is wrong (what is before it "
                    "can be replayed: head -c %llu)",
                    at, at);
}

/* RAD_NONE: the file ends before or within it. */
static rad_status next_frame(record_reader *r, rad_error *err)
{
    r->frame = r->end;
    const uint64_t left = r->size - r->frame;
    if (left < RECORD_FRAME_HEAD) return RAD_NONE;
    const uint8_t *head = r->bytes + r->frame;
    if (XXH32(head, 8, 0) != record_fixed_at(head + 8, 4)) return bad_frame(r, err);
    const uint64_t bytes = record_fixed_at(head, 4), sum = record_fixed_at(head + 4, 4);
    r->at = r->frame + RECORD_FRAME_HEAD;
    if (bytes > RECORD_MOST_FRAME || bytes == 0)
        return rad_fail(err, RAD_E_FORMAT, "the frame at byte %llu says that it has %llu bytes",
                        (unsigned long long)r->frame, (unsigned long long)bytes);
    if (bytes > left - RECORD_FRAME_HEAD) return RAD_NONE;
    r->end = r->at + bytes;
    return XXH32(r->bytes + r->at, bytes, 0) == sum ? RAD_OK : bad_frame(r, err);
}

static rad_status damaged(const record_reader *r, const char *what, rad_error *err)
{
    return rad_fail(err, RAD_E_FORMAT, "operation %llu, in the frame at byte %llu: %s",
                    (unsigned long long)r->num_ops, (unsigned long long)r->frame, what);
}

static bool get_varint(record_reader *r, uint64_t *n)
{
    *n = 0;
    for (unsigned shift = 0; shift < 64 && r->at < r->end; shift += 7) {
        uint8_t byte = r->bytes[r->at++];
        if (shift == 63 && byte > 1) return false;
        *n |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return true;
    }
    return false;
}

/* ---- the head ---- */

static rad_status read_line(record_reader *r, const char *line, size_t len, rad_error *err)
{
    char text[LINE_BYTES], *end;
    size_t count;
    const record_head_line *known = record_head_lines(&count);
    const char *equals = memchr(line, '=', len);
    if (!equals || len >= sizeof text)
        return rad_fail(err, RAD_E_FORMAT, "its head has a line that is not key=value");
    memcpy(text, line, len);
    text[len] = 0;
    size_t key = (size_t)(equals - line);
    text[key] = 0;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(known[i].key, text) != 0) continue;
        unsigned long long n = strtoull(text + key + 1, &end, 10);
        if (text[key + 1] < '0' || text[key + 1] > '9' || *end || n < known[i].least ||
            n > known[i].most)
            return rad_fail(err, RAD_E_FORMAT, "its head says %s=%.30s", text, text + key + 1);
        uint64_t value = n;
        memcpy((char *)&r->head + known[i].at, &value, sizeof value);
    }
    return RAD_OK;
}

bool record_is(const void *bytes, uint64_t size)
{
    const char *at = bytes;
    return size >= RECORD_MAGIC_BYTES && memcmp(at, RECORD_MAGIC, RECORD_FORMAT_DIGIT) == 0 &&
           at[RECORD_FORMAT_DIGIT] >= '1' && at[RECORD_FORMAT_DIGIT] <= '9' &&
           at[RECORD_FORMAT_DIGIT + 1] == '\n';
}

static rad_status read_head(record_reader *r, rad_error *err)
{
    if (!record_is(r->bytes, r->size))
        return rad_fail(err, RAD_E_FORMAT, "is no record: it does not begin with RADREC");
    if (memcmp(r->bytes, RECORD_MAGIC, RECORD_MAGIC_BYTES) != 0)
        return rad_fail(
            err, RAD_E_FORMAT,
            "is a record of format %c, and this radish reads format %c alone: replay it "
            "with the version that wrote it, or record anew",
            r->bytes[RECORD_FORMAT_DIGIT], RECORD_MAGIC[RECORD_FORMAT_DIGIT]);
    r->end = RECORD_MAGIC_BYTES;
    rad_status status = next_frame(r, err);
    if (status == RAD_NONE || (status == RAD_OK && r->bytes[r->at] != 'H'))
        return rad_fail(err, RAD_E_FORMAT, "holds no head: nothing was recorded");
    if (status != RAD_OK) return status;
    for (r->at++; r->at < r->end && status == RAD_OK;) {
        const uint8_t *line = r->bytes + r->at;
        const uint8_t *end = memchr(line, '\n', r->end - r->at);
        if (!end) return rad_fail(err, RAD_E_FORMAT, "its head ends within a line");
        status = read_line(r, (const char *)line, (size_t)(end - line), err);
        r->at += (uint64_t)(end - line) + 1;
    }
    if (status == RAD_OK && (!r->head.max_total_tokens || !r->head.page_size || !r->head.max_rows ||
                             !r->head.row_tokens || r->head.page_size > r->head.max_total_tokens))
        return rad_fail(err, RAD_E_FORMAT, "its head does not say how large the cache was");
    return status;
}

rad_status record_open(const rad_env *env, const void *bytes, uint64_t size, record_reader **out,
                       rad_error *err)
{
    *out = NULL;
    rad_env full = rad_env_or_default(env);
    record_reader *r = rad_alloc(&full, sizeof *r);
    if (!r) return rad_fail(err, RAD_E_NOMEM, "no memory for a record");
    *r = (record_reader){.env = full, .bytes = bytes, .size = size, .how = RECORD_CUT};
    hash_key_init(&r->secret, &full);
    rad_status status = read_head(r, err);
    r->at = r->end; /* the next frame is to be read */
    if (status != RAD_OK) {
        record_close(r);
        return status;
    }
    *out = r;
    return RAD_OK;
}

void record_close(record_reader *r)
{
    if (!r) return;
    rad_env env = r->env;
    map_fini(&r->by_hash);
    map_fini(&r->by_name);
    rad_free(&env, r->names, r->names_cap * sizeof *r->names);
    rad_free(&env, r->pages, r->cap * sizeof *r->pages);
    rad_free(&env, r, sizeof *r);
}

/* ---- pages ---- */

static bool grow_pages(record_reader *r)
{
    if (r->num_pages + 1 < r->cap) return true;
    uint64_t cap = r->cap ? 2 * r->cap : FIRST_PAGES;
    page_entry *pages = rad_alloc(&r->env, cap * sizeof *pages);
    if (!pages || cap > MOST_PAGES || !map_move(&r->by_hash, &r->env, (uint32_t)cap)) {
        rad_free(&r->env, pages, cap * sizeof *pages);
        return false;
    }
    if (r->num_pages) memcpy(pages, r->pages, (r->num_pages + 1) * sizeof *pages);
    rad_free(&r->env, r->pages, r->cap * sizeof *pages);
    r->pages = pages;
    r->cap = cap;
    return true;
}

/* Whoever has this hash already, at this depth. */
static uint32_t find_page(const record_reader *r, uint64_t hash, uint32_t depth)
{
    const uint32_t mixed = hash_mix(&r->secret, hash);
    uint32_t at = map_start(&r->by_hash, mixed);
    for (uint32_t id; (id = map_next(&r->by_hash, mixed, &at));)
        if (r->pages[id].hash == hash && r->pages[id].depth == depth) return id;
    return 0;
}

static rad_status add_page(record_reader *r, uint32_t parent, bool goes_on, uint64_t hash,
                           rad_error *err)
{
    if (!grow_pages(r))
        return rad_fail(err, RAD_E_NOMEM, "no memory for more than %llu pages",
                        (unsigned long long)r->num_pages);
    uint32_t number = (uint32_t)++r->num_pages;
    page_entry *p = &r->pages[number];
    *p = (page_entry){.hash = hash,
                      .parent = parent,
                      .first = goes_on ? r->pages[number - 1].first : number,
                      .depth = parent ? r->pages[parent].depth + 1 : 1};
    p->page = find_page(r, hash, p->depth);
    if (p->page) return RAD_OK;
    p->page = number;
    map_insert(&r->by_hash, hash_mix(&r->secret, hash), number);
    return RAD_OK;
}

static rad_status read_pages(record_reader *r, record_op *op, rad_error *err)
{
    uint64_t last, count;
    if (!get_varint(r, &last) || !get_varint(r, &count))
        return damaged(r, "ends within its pages", err);
    if (last > r->num_pages) return damaged(r, "goes on behind a page that was not named", err);
    if (count > (r->end - r->at) / 8) return damaged(r, "ends within its pages", err);
    for (uint64_t i = 0; i < count; i++, r->at += 8) {
        rad_status status =
            add_page(r, (uint32_t)last, i > 0, record_fixed_at(r->bytes + r->at, 8), err);
        if (status != RAD_OK) return status;
        last = r->num_pages;
    }
    op->page = (uint32_t)last;
    op->num_pages = last ? r->pages[last].depth : 0;
    return RAD_OK;
}

/* ---- namespaces ---- */

static rad_status add_namespace(record_reader *r, uint64_t hash, rad_error *err)
{
    if (r->num_names + 1 >= r->names_cap) {
        uint64_t cap = RAD_MAX(2 * r->names_cap, 64u);
        struct namespace_entry *names = cap > MOST_PAGES ? NULL
                                                         : rad_alloc(&r->env, cap * sizeof *names);
        if (!names || !map_move(&r->by_name, &r->env, (uint32_t)cap)) {
            rad_free(&r->env, names, cap * sizeof *names);
            return rad_fail(err, RAD_E_NOMEM, "no memory for more than %llu namespaces",
                            (unsigned long long)r->num_names);
        }
        if (r->num_names) memcpy(names, r->names, (r->num_names + 1) * sizeof *names);
        rad_free(&r->env, r->names, r->names_cap * sizeof *names);
        r->names = names;
        r->names_cap = cap;
    }
    const uint32_t number = (uint32_t)++r->num_names, mixed = hash_mix(&r->secret, hash);
    struct namespace_entry *n = &r->names[number];
    *n = (struct namespace_entry){.hash = hash};
    uint32_t at = map_start(&r->by_name, mixed);
    for (uint32_t id; !n->number && (id = map_next(&r->by_name, mixed, &at));)
        if (r->names[id].hash == hash) n->number = id;
    if (n->number) return RAD_OK;
    n->number = number;
    map_insert(&r->by_name, mixed, number);
    return RAD_OK;
}

/* ---- operations ---- */

static rad_status read_op(record_reader *r, record_op *op, rad_error *err)
{
    uint64_t passed;
    *op = (record_op){.kind = (record_kind)r->bytes[r->at++]};
    r->num_ops++;
    const record_shape *shape = record_shape_of(op->kind);
    if (!shape) return damaged(r, "a kind that this radish does not know", err);
    if (!get_varint(r, &passed) || passed > UINT64_MAX / 4 - r->time_us)
        return damaged(r, "has no time", err);
    op->time_us = r->time_us += passed;
    for (unsigned i = 0; i < shape->fields; i++)
        if (!get_varint(r, &op->field[i])) return damaged(r, "ends within its fields", err);
    if (op->kind == RECORD_LOST) r->lost += RAD_MIN(op->field[0], UINT64_MAX - r->lost);
    if (op->kind == RECORD_NAMESPACE) return add_namespace(r, op->field[0], err);
    if (op->kind == RECORD_ARRIVE || op->kind == RECORD_PIN_KEY) {
        if (op->field[1] > r->num_names) return damaged(r, "a namespace without a number", err);
        if (op->field[1]) op->field[1] = r->names[op->field[1]].number;
        if (op->field[op->kind == RECORD_ARRIVE ? 4 : 0] > RECORD_MOST_TOKENS)
            return damaged(r, "a prompt without an end", err);
    }
    return shape->pages ? read_pages(r, op, err) : RAD_OK;
}

/* Into the next frame of operations. */
static rad_status enter_frame(record_reader *r, rad_error *err)
{
    uint64_t time_us, why;
    rad_status status = next_frame(r, err);
    if (status != RAD_OK) return status;
    switch (r->bytes[r->at++]) {
    case 'O':
        if (!get_varint(r, &time_us) || time_us < r->time_us || time_us > UINT64_MAX / 4)
            return damaged(r, "a frame whose time is not behind the one before", err);
        r->time_us = time_us;
        return RAD_OK;
    case 'E':
        if (!get_varint(r, &why) || why > RECORD_LIMIT || r->end != r->size)
            return damaged(r, "an end that is none", err);
        r->how = (record_end)why;
        return RAD_NONE;
    }
    return damaged(r, "a frame that this radish does not know", err);
}

rad_status record_next(record_reader *r, record_op *op, rad_error *err)
{
    rad_status status = r->ended ? RAD_NONE : RAD_OK;
    while (status == RAD_OK && r->at == r->end)
        status = enter_frame(r, err);
    if (status == RAD_OK) status = read_op(r, op, err);
    r->ended = status != RAD_OK;
    return status;
}

const record_head *record_get_head(const record_reader *r)
{
    return &r->head;
}

record_end record_get_end(const record_reader *r)
{
    return r->how;
}

uint64_t record_get_lost(const record_reader *r)
{
    return r->lost;
}

uint32_t record_num_pages(const record_reader *r)
{
    return (uint32_t)r->num_pages;
}

uint64_t record_num_ops(const record_reader *r)
{
    return r->num_ops;
}

uint32_t record_page_of(const record_reader *r, uint32_t number)
{
    return r->pages[number].page;
}

bool record_visit_runs(const record_reader *r, uint32_t page, record_run_fn run, void *user)
{
    while (page) {
        const page_entry *p = &r->pages[page];
        if (!run(user, p->first, page - p->first + 1)) return false;
        page = r->pages[p->first].parent;
    }
    return true;
}

void record_chain(const record_reader *r, uint32_t page, uint32_t *pages)
{
    for (uint32_t at = page ? r->pages[page].depth : 0; page; page = r->pages[page].parent)
        pages[--at] = r->pages[page].page;
}
