/* kv_events_consumer.c - a router's view of a server's cache, from its KV events.
 *
 *     kv_events_consumer tcp://127.0.0.1:5557 tcp://127.0.0.1:5558 [--lose N]
 *
 * Follows the events of `radish serve MODEL --kv-events-config '{...}'` (or of SGLang, or vLLM with
 * integer hashes) and keeps which blocks are cached, on which tiers. A line on stdin with a number
 * prints the index, as JSON, once every batch before that number is in it; the end of stdin ends
 * it.
 *
 *     socket    SUB, frames: topic, sequence number, msgpack batch
 *     replay    DEALER, asks: "", first number wanted
 *
 * PUB and SUB lose frames: a subscriber that comes late, that is slow, that was disconnected. The
 * numbers tell; what is missing is asked for. With --lose N every Nth frame is thrown away, to show
 * that it does not matter. What the server itself has no more it tells anew: AllBlocksCleared, then
 * stores. So there is nothing else to do here than to believe it.
 *
 * It also computes each block's hash from its tokens, as page_hash.h says, as far as its chain
 * begins in the default namespace: a router can name the blocks of a prompt that it has not seen
 * yet. */
#include <radish/page_hash.h>
#include <radish/radish.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

/* ---- the index: hash -> the tiers that have the block ---- */

static const char *const tiers[] = {"GPU", "CPU_PINNED", "DISK", "EXTERNAL"};
enum { NUM_TIERS = sizeof tiers / sizeof tiers[0] };

typedef struct entry {
    int64_t hash;
    uint8_t used;  /* 0: never; a block that is gone keeps its place, with no tier */
    uint8_t tiers; /* a bit each */
    uint8_t has_digest;
    rad_page_hash digest; /* of which `hash` is the front */
} entry;

typedef struct block_index {
    entry *entries; /* open addressing, a power of two */
    size_t room, used;
} block_index;

static entry *find(const block_index *x, int64_t hash)
{
    size_t at = (size_t)(uint64_t)hash & (x->room - 1); /* it is a piece of a SHA-256 */
    while (x->entries[at].used && x->entries[at].hash != hash)
        at = (at + 1) & (x->room - 1);
    return &x->entries[at];
}

static void make_index(block_index *x, size_t room)
{
    *x = (block_index){calloc(room, sizeof *x->entries), room, 0};
    if (!x->entries) exit(1);
}

static entry *find_or_add(block_index *x, int64_t hash)
{
    if (2 * (x->used + 1) > x->room) {
        block_index larger;
        make_index(&larger, 2 * x->room);
        for (size_t i = 0; i < x->room; i++)
            if (x->entries[i].tiers) {
                *find(&larger, x->entries[i].hash) = x->entries[i];
                larger.used++;
            }
        free(x->entries);
        *x = larger;
    }
    entry *e = find(x, hash);
    if (!e->used) *e = (entry){.hash = hash, .used = (uint8_t)(x->used++, 1)};
    return e;
}

static void clear_index(block_index *x)
{
    memset(x->entries, 0, x->room * sizeof *x->entries);
    x->used = 0;
}

/* ---- msgpack, as much of it as events have ---- */

typedef struct reader {
    const uint8_t *at, *end;
    int failed;
} reader;

typedef enum kind { NIL, NUMBER, TEXT, ARRAY, MAP, OTHER } kind;

typedef struct value {
    kind kind;
    int64_t number;   /* or the length of an array or a map */
    const char *text; /* not terminated */
    size_t len;
} value;

static uint64_t take(reader *r, size_t bytes)
{
    uint64_t n = 0;
    if ((size_t)(r->end - r->at) < bytes) {
        r->failed = 1;
        return 0;
    }
    while (bytes--)
        n = n << 8 | *r->at++;
    return n;
}

static value text_of(reader *r, size_t len)
{
    value v = {.kind = TEXT, .text = (const char *)r->at, .len = len};
    if ((size_t)(r->end - r->at) < len)
        r->failed = 1;
    else
        r->at += len;
    return v;
}

static value next(reader *r)
{
    const uint8_t tag = (uint8_t)take(r, 1);
    if (tag < 0x80 || tag >= 0xe0) return (value){.kind = NUMBER, .number = (int8_t)tag};
    if (tag < 0x90) return (value){.kind = MAP, .number = tag & 15};
    if (tag < 0xa0) return (value){.kind = ARRAY, .number = tag & 15};
    if (tag < 0xc0) return text_of(r, tag & 31);
    switch (tag) {
    case 0xc0: return (value){.kind = NIL};
    case 0xc4:
    case 0xd9: return text_of(r, take(r, 1));
    case 0xca: take(r, 4); return (value){.kind = OTHER};
    case 0xcb: take(r, 8); return (value){.kind = OTHER};
    case 0xcc: return (value){.kind = NUMBER, .number = (int64_t)take(r, 1)};
    case 0xcd: return (value){.kind = NUMBER, .number = (int64_t)take(r, 2)};
    case 0xce: return (value){.kind = NUMBER, .number = (int64_t)take(r, 4)};
    case 0xcf: return (value){.kind = NUMBER, .number = (int64_t)take(r, 8)};
    case 0xd0: return (value){.kind = NUMBER, .number = (int8_t)take(r, 1)};
    case 0xd1: return (value){.kind = NUMBER, .number = (int16_t)take(r, 2)};
    case 0xd2: return (value){.kind = NUMBER, .number = (int32_t)take(r, 4)};
    case 0xd3: return (value){.kind = NUMBER, .number = (int64_t)take(r, 8)};
    case 0xda: return text_of(r, take(r, 2));
    case 0xdc: return (value){.kind = ARRAY, .number = (int64_t)take(r, 2)};
    case 0xdd: return (value){.kind = ARRAY, .number = (int64_t)take(r, 4)};
    case 0xde: return (value){.kind = MAP, .number = (int64_t)take(r, 2)};
    default: r->failed = tag != 0xc2 && tag != 0xc3; return (value){.kind = OTHER};
    }
}

static void skip(reader *r, int depth)
{
    value v = next(r);
    if (depth > 8) r->failed = 1;
    for (int64_t i = 0; (v.kind == ARRAY || v.kind == MAP) && i < v.number && !r->failed; i++) {
        skip(r, depth + 1);
        if (v.kind == MAP) skip(r, depth + 1);
    }
}

static int is_text(value v, const char *text)
{
    return v.kind == TEXT && v.len == strlen(text) && memcmp(v.text, text, v.len) == 0;
}

/* ---- events ---- */

typedef struct consumer {
    block_index index;
    rad_page_hasher *hasher;
    uint64_t next_seq; /* every batch before this one is in the index */
    uint64_t num_lost, num_asked, num_checked, num_wrong;
    int asking; /* a replay is under way: live frames are in it, or come again */
} consumer;

/* The fields of an event of either form: where each list begins. */
typedef struct event {
    value type, parent, medium, block_size;
    reader hashes, tokens;
    int64_t num_hashes, num_tokens;
    int has_salt;
} event;

static void read_list(reader *r, reader *list, int64_t *count)
{
    value v = next(r);
    *list = *r;
    *count = v.kind == ARRAY ? v.number : 0;
    for (int64_t i = 0; i < *count && !r->failed; i++)
        skip(r, 0);
}

static void read_field(reader *r, event *e, const char *name, size_t len)
{
    value v = {.kind = TEXT, .text = name, .len = len};
    if (is_text(v, "block_hashes"))
        read_list(r, &e->hashes, &e->num_hashes);
    else if (is_text(v, "parent_block_hash"))
        e->parent = next(r);
    else if (is_text(v, "token_ids"))
        read_list(r, &e->tokens, &e->num_tokens);
    else if (is_text(v, "block_size"))
        e->block_size = next(r);
    else if (is_text(v, "medium"))
        e->medium = next(r);
    else if (is_text(v, "type"))
        e->type = next(r);
    else {
        if (is_text(v, "cache_salt")) e->has_salt = 1;
        skip(r, 0);
    }
}

static void read_map(reader *r, event *e, int64_t count)
{
    for (int64_t i = 0; i < count && !r->failed; i++) {
        value name = next(r);
        read_field(r, e, name.text ? name.text : "", name.len);
    }
}

/* By position: what each kind of event has there. */
static void read_array(reader *r, event *e, int64_t count)
{
    static const char *const stored[] = {"block_hashes", "parent_block_hash", "token_ids",
                                         "block_size",   "lora_id",           "medium"};
    static const char *const removed[] = {"block_hashes", "medium"};
    e->type = next(r);
    for (int64_t i = 0; i < count - 1 && !r->failed; i++) {
        const char *name = "";
        if (is_text(e->type, "BlockStored") && i < 6) name = stored[i];
        if (is_text(e->type, "BlockRemoved") && i < 2) name = removed[i];
        const reader before = *r;
        value v = next(r);
        if (v.kind == MAP) { /* what SGLang adds for salted blocks */
            read_map(r, e, v.number);
            continue;
        }
        *r = before;
        read_field(r, e, name, strlen(name));
    }
}

/* Whether the block's name is what its tokens give. `parent` is NULL at the front of a prompt. */
static void check_hash(consumer *c, entry *e, const entry *parent, const rad_token *tokens,
                       uint32_t count)
{
    rad_page_hash digest;
    if (parent && !parent->has_digest) return;
    if (rad_page_hash_tokens(c->hasher, parent ? &parent->digest : NULL, tokens, count, &digest))
        return;
    c->num_checked++;
    if (rad_page_hash_event(&digest) != e->hash) {
        c->num_wrong++;
        return;
    }
    e->digest = digest;
    e->has_digest = 1;
}

static void store(consumer *c, event *e, uint8_t tier)
{
    const int64_t size = e->block_size.number;
    int64_t parent = e->parent.number;
    int has_parent = e->parent.kind == NUMBER;
    rad_token tokens[4096];
    for (int64_t i = 0; i < e->num_hashes; i++) {
        const int64_t hash = next(&e->hashes).number;
        entry *at = find_or_add(&c->index, hash);
        at->tiers |= tier;
        for (int64_t k = 0; k < size && !e->tokens.failed; k++) {
            const value token = next(&e->tokens);
            if (k < 4096) tokens[k] = (rad_token)token.number;
        }
        if (!at->has_digest && !e->has_salt && size <= 4096 &&
            e->num_tokens == size * e->num_hashes)
            check_hash(c, at, has_parent ? find(&c->index, parent) : NULL, tokens, (uint32_t)size);
        parent = hash;
        has_parent = 1;
    }
}

static void apply(consumer *c, event *e)
{
    uint8_t tier = 1; /* of old engines, which know one */
    for (int i = 0; i < NUM_TIERS; i++)
        if (is_text(e->medium, tiers[i])) tier = (uint8_t)(1 << i);
    if (is_text(e->type, "AllBlocksCleared"))
        clear_index(&c->index);
    else if (is_text(e->type, "BlockStored"))
        store(c, e, tier);
    else if (is_text(e->type, "BlockRemoved"))
        for (int64_t i = 0; i < e->num_hashes; i++)
            find(&c->index, next(&e->hashes).number)->tiers &= (uint8_t)~tier;
}

static void apply_batch(consumer *c, const void *bytes, size_t len)
{
    reader r = {bytes, (const uint8_t *)bytes + len, 0};
    value outer = next(&r), events;
    skip(&r, 0); /* when */
    events = next(&r);
    for (int64_t i = 0; i < events.number && !r.failed; i++) {
        event e = {0};
        value v = next(&r);
        if (v.kind == MAP)
            read_map(&r, &e, v.number);
        else
            read_array(&r, &e, v.number);
        if (!r.failed) apply(c, &e);
    }
    if (outer.kind != ARRAY || r.failed) fprintf(stderr, "a batch that cannot be read\n");
}

/* ---- sockets ---- */

enum { MOST_FRAMES = 5 };

typedef struct message {
    zmq_msg_t frames[MOST_FRAMES];
    int count;
} message;

static int receive(void *socket, message *m)
{
    int more = 1;
    for (m->count = 0; more && m->count < MOST_FRAMES; m->count++) {
        zmq_msg_init(&m->frames[m->count]);
        if (zmq_msg_recv(&m->frames[m->count], socket, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(&m->frames[m->count]);
            return 0;
        }
        more = zmq_msg_more(&m->frames[m->count]);
    }
    return m->count >= 3;
}

static void release(message *m)
{
    while (m->count)
        zmq_msg_close(&m->frames[--m->count]);
}

/* The last two frames, whatever stands before them: of a live message and of a replay alike. */
static uint64_t seq_of(message *m)
{
    zmq_msg_t *frame = &m->frames[m->count - 2];
    reader r = {zmq_msg_data(frame), (uint8_t *)zmq_msg_data(frame) + zmq_msg_size(frame), 0};
    return take(&r, 8);
}

static void ask(consumer *c, void *replay)
{
    uint8_t from[8];
    if (c->asking) return;
    for (int i = 0; i < 8; i++)
        from[i] = (uint8_t)(c->next_seq >> (56 - 8 * i));
    zmq_send(replay, "", 0, ZMQ_SNDMORE);
    zmq_send(replay, from, 8, 0);
    c->asking = 1;
    c->num_asked++;
}

static void take_batch(consumer *c, message *m)
{
    zmq_msg_t *payload = &m->frames[m->count - 1];
    apply_batch(c, zmq_msg_data(payload), zmq_msg_size(payload));
    c->next_seq = seq_of(m) + 1;
}

static void print_index(const consumer *c)
{
    printf("{\"next_seq\": %" PRIu64 ", \"lost\": %" PRIu64 ", \"asked\": %" PRIu64
           ", \"checked\": %" PRIu64 ", \"wrong\": %" PRIu64 ", \"blocks\": {",
           c->next_seq, c->num_lost, c->num_asked, c->num_checked, c->num_wrong);
    for (int t = 0; t < NUM_TIERS; t++) {
        const char *comma = "";
        printf("%s\"%s\": [", t ? ", " : "", tiers[t]);
        for (size_t i = 0; i < c->index.room; i++)
            if (c->index.entries[i].tiers >> t & 1) {
                printf("%s%" PRId64, comma, c->index.entries[i].hash);
                comma = ", ";
            }
        printf("]");
    }
    printf("}}\n");
    fflush(stdout);
}

static int fail(const char *what, const char *endpoint)
{
    fprintf(stderr, "%s %s: %s\n", what, endpoint, zmq_strerror(zmq_errno()));
    return 1;
}

int main(int argc, char **argv)
{
    consumer c = {0};
    const uint64_t lose = argc == 5 && !strcmp(argv[3], "--lose") ? strtoull(argv[4], NULL, 10) : 0;
    if (argc != 3 && !lose) {
        fprintf(stderr, "usage: kv_events_consumer ENDPOINT REPLAY-ENDPOINT [--lose N]\n");
        return 2;
    }
    void *context = zmq_ctx_new(), *live = zmq_socket(context, ZMQ_SUB);
    void *replay = zmq_socket(context, ZMQ_DEALER);
    const int none = 0;
    zmq_setsockopt(replay, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(replay, ZMQ_RCVHWM, &none, sizeof none);
    zmq_setsockopt(live, ZMQ_SUBSCRIBE, "", 0);
    if (zmq_connect(live, argv[1]) != 0) return fail("cannot connect to", argv[1]);
    if (zmq_connect(replay, argv[2]) != 0) return fail("cannot connect to", argv[2]);
    if (rad_page_hasher_create(NULL, &c.hasher, NULL) != RAD_OK) return 1;
    make_index(&c.index, 1024);
    ask(&c, replay); /* what was before we came */

    uint64_t frames = 0, wanted = UINT64_MAX;
    for (int open = 1; open || (wanted != UINT64_MAX && c.next_seq < wanted);) {
        zmq_pollitem_t items[] = {
            {live, 0, ZMQ_POLLIN, 0}, {replay, 0, ZMQ_POLLIN, 0}, {NULL, 0, ZMQ_POLLIN, 0}};
        zmq_poll(items, open ? 3 : 2, -1);
        message m;
        while (receive(replay, &m)) {
            const uint64_t seq = seq_of(&m);
            if (seq == UINT64_MAX)
                c.asking = 0;
            else if (seq >= c.next_seq)
                take_batch(&c, &m);
            release(&m);
        }
        while (receive(live, &m)) {
            const uint64_t seq = seq_of(&m);
            const int dropped = lose && ++frames % lose == 0;
            c.num_lost += (uint64_t)dropped;
            if (!dropped && seq == c.next_seq && !c.asking)
                take_batch(&c, &m);
            else if (!dropped && seq > c.next_seq)
                ask(&c, replay);
            release(&m);
        }
        if (open && items[2].revents) {
            char line[64];
            open = fgets(line, sizeof line, stdin) != NULL;
            if (open) wanted = strtoull(line, NULL, 10);
        }
        if (wanted == UINT64_MAX) continue;
        if (c.next_seq < wanted) { /* the last frame may have been lost: nothing behind it tells */
            ask(&c, replay);
            continue;
        }
        print_index(&c);
        wanted = UINT64_MAX;
    }
    zmq_close(live);
    zmq_close(replay);
    zmq_ctx_term(context);
    rad_page_hasher_destroy(c.hasher);
    free(c.index.entries);
    return 0;
}
