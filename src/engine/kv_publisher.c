/* kv_publisher.c - see the header.
 *
 * Sockets belong to the thread. Batches are shared, not copied: the one that is kept for replays
 * and those on their way to subscribers are one memory, which libzmq's thread frees when the last
 * of them is gone. What all subscribers together can hold is so hwm batches (kv_wire.h: of
 * KV_WIRE_BATCH_BYTES), however many there are and however slow. */
#include "engine/kv_publisher.h"

#include "engine/kv_queue.h"

#ifdef RADISH_HAVE_ZMQ
#include "base/compute_pool.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

enum {
    RESTATE_S = 5,
    LINGER_MS = 1000,
    MOST_REQUEST_BYTES = 1024, /* of what a stranger sends */
    REPLAY_BYTES = 64 << 20,   /* of batches that are kept, beside buffer_steps of them */
    BATCHES_A_TURN = 256       /* between two looks at who asks for a replay */
};

typedef struct kept_batch {
    uint64_t seq;
    zmq_msg_t msg;
} kept_batch;

struct kv_publisher {
    rad_env env;
    kv_events_config config;
    void (*restate)(void *user);
    void *user;
    kv_queue queue;
    int wake_fd;
    pthread_t thread;
    bool started;
    atomic_bool stop;

    /* The scheduler's thread: */
    kv_wire wire;
    uint64_t next_seq;
    bool lost; /* a drop: nothing more is told until all is told anew */

    /* Between both: */
    atomic_bool wants_restating;
    _Atomic uint64_t batches, bytes, dropped, restatements, replays;

    /* The thread's: */
    void *context, *pub, *router;
    kept_batch *kept; /* a ring of buffer_steps */
    uint32_t first_kept, num_kept;
    uint64_t kept_bytes;
    uint64_t restate_at_ns; /* not before */
};

bool kv_publisher_is_built(void)
{
    return true;
}

/* ---- the scheduler's thread ---- */

static void on_batch(void *user, const uint8_t *bytes, size_t len)
{
    kv_publisher *p = user;
    if (p->lost) return;
    if (kv_queue_push(&p->queue, p->next_seq++, bytes, len)) return;
    atomic_fetch_add(&p->dropped, 1);
    p->lost = true;
    atomic_store(&p->wants_restating, true);
}

void kv_publisher_add(void *publisher, const rad_kv_event *event)
{
    kv_publisher *p = publisher;
    if (event->type == RAD_KV_LOST) { /* the cache's own queue was full */
        p->lost = true;
        atomic_store(&p->wants_restating, true);
    }
    if (!p->lost) kv_wire_add(&p->wire, event);
}

static void wake(const kv_publisher *p)
{
    const uint64_t one = 1;
    const ssize_t n = write(p->wake_fd, &one, sizeof one);
    (void)n; /* a full counter wakes as well */
}

void kv_publisher_flush(kv_publisher *p)
{
    kv_wire_end(&p->wire);
    if (kv_queue_count(&p->queue) || atomic_load(&p->wants_restating)) wake(p);
}

void kv_publisher_begin_restating(kv_publisher *p)
{
    kv_wire_end(&p->wire);
    p->lost = false;
    atomic_store(&p->wants_restating, false);
    atomic_fetch_add(&p->restatements, 1);
}

uint64_t kv_publisher_next_seq(const kv_publisher *p)
{
    return p->next_seq;
}

void kv_publisher_get_stats(kv_publisher *p, kv_publisher_stats *stats)
{
    *stats = (kv_publisher_stats){.batches = atomic_load(&p->batches),
                                  .bytes = atomic_load(&p->bytes),
                                  .dropped_batches = atomic_load(&p->dropped),
                                  .restatements = atomic_load(&p->restatements),
                                  .replays = atomic_load(&p->replays),
                                  .queued = kv_queue_count(&p->queue)};
}

/* ---- the thread ---- */

static void forget_oldest(kv_publisher *p)
{
    kept_batch *b = &p->kept[p->first_kept];
    p->kept_bytes -= zmq_msg_size(&b->msg);
    zmq_msg_close(&b->msg);
    p->first_kept = (p->first_kept + 1) % p->config.buffer_steps;
    p->num_kept--;
}

static kept_batch *kept_at(const kv_publisher *p, uint32_t i)
{
    return &p->kept[(p->first_kept + i) % p->config.buffer_steps];
}

static void free_batch(void *bytes, void *batch)
{
    (void)bytes;
    kv_batch_free(batch);
}

/* NULL: no memory, and the batch is gone. */
static kept_batch *keep(kv_publisher *p, kv_batch *b)
{
    while (p->num_kept == p->config.buffer_steps ||
           (p->num_kept && p->kept_bytes + b->len > REPLAY_BYTES))
        forget_oldest(p);
    kept_batch *k = kept_at(p, p->num_kept);
    k->seq = b->seq;
    if (zmq_msg_init_data(&k->msg, b->bytes, b->len, free_batch, b) != 0) {
        kv_batch_free(b);
        return NULL;
    }
    p->num_kept++;
    p->kept_bytes += zmq_msg_size(&k->msg);
    return k;
}

static void put_seq(uint8_t *to, uint64_t seq)
{
    for (unsigned i = 0; i < 8; i++)
        to[i] = (uint8_t)(seq >> (56 - 8 * i));
}

/* The rest of a message whose first frames are out. */
static bool send_batch(void *socket, uint64_t seq, zmq_msg_t *payload)
{
    uint8_t number[8];
    zmq_msg_t copy;
    put_seq(number, seq);
    if (zmq_send(socket, number, sizeof number, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) return false;
    zmq_msg_init(&copy);
    if (payload && zmq_msg_copy(&copy, payload) != 0) return false;
    if (zmq_msg_send(&copy, socket, ZMQ_DONTWAIT) >= 0) return true;
    zmq_msg_close(&copy);
    return false;
}

static void publish(kv_publisher *p, kv_batch *b)
{
    const size_t len = b->len;
    kept_batch *k = keep(p, b);
    if (!k) return;
    const size_t topic = strlen(p->config.topic);
    if (zmq_send(p->pub, p->config.topic, topic, ZMQ_SNDMORE) < 0) return;
    if (!send_batch(p->pub, k->seq, &k->msg)) return;
    atomic_fetch_add(&p->batches, 1);
    atomic_fetch_add(&p->bytes, len);
}

/* The frames before the number: whose reply it is, the empty one, the topic if it is wanted. */
static bool send_head(const kv_publisher *p, zmq_msg_t *who)
{
    zmq_msg_t id;
    const size_t topic = strlen(p->config.topic);
    zmq_msg_init(&id);
    if (zmq_msg_copy(&id, who) != 0) return false;
    if (zmq_msg_send(&id, p->router, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
        zmq_msg_close(&id);
        return false;
    }
    if (zmq_send(p->router, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) return false;
    return !p->config.replay_topic ||
           zmq_send(p->router, p->config.topic, topic, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0;
}

static void replay(kv_publisher *p, zmq_msg_t *who, uint64_t from)
{
    uint64_t next = from, end = 0;
    for (uint32_t i = 0; i < p->num_kept; i++) {
        kept_batch *k = kept_at(p, i);
        end = k->seq + 1;
        if (k->seq < from) continue;
        if (k->seq != next) atomic_store(&p->wants_restating, true); /* some are gone */
        next = k->seq + 1;
        if (!send_head(p, who) || !send_batch(p->router, k->seq, &k->msg)) return;
    }
    (void)(send_head(p, who) && send_batch(p->router, UINT64_MAX, NULL));
    /* Of another life of this server; or what it wants was the last, and was dropped. */
    if (from > end) atomic_store(&p->wants_restating, true);
    atomic_fetch_add(&p->replays, 1);
}

/* One request: [who, "", number]. Anything else is somebody who speaks another protocol. */
static bool answer_request(kv_publisher *p)
{
    zmq_msg_t who, frame;
    uint64_t from = 0;
    uint32_t frames = 0;
    bool fine = true, more;
    zmq_msg_init(&who);
    if (zmq_msg_recv(&who, p->router, ZMQ_DONTWAIT) < 0) {
        zmq_msg_close(&who);
        return false;
    }
    for (more = zmq_msg_more(&who); more; frames++) {
        zmq_msg_init(&frame);
        if (zmq_msg_recv(&frame, p->router, 0) < 0) {
            zmq_msg_close(&frame);
            break;
        }
        fine = fine && zmq_msg_size(&frame) == (frames ? 8 : 0);
        const uint8_t *bytes = zmq_msg_data(&frame);
        for (size_t i = 0; fine && i < zmq_msg_size(&frame); i++)
            from = from << 8 | bytes[i];
        more = zmq_msg_more(&frame);
        zmq_msg_close(&frame);
    }
    if (fine && frames == 2) replay(p, &who, from);
    zmq_msg_close(&who);
    return true;
}

static bool may_restate(const kv_publisher *p)
{
    return p->env.now_ns(p->env.user) >= p->restate_at_ns;
}

static void tell_anew(kv_publisher *p)
{
    if (!may_restate(p)) return;
    p->restate_at_ns = p->env.now_ns(p->env.user) + (uint64_t)RESTATE_S * 1000000000;
    p->restate(p->user);
}

/* Until there is something to do. */
static void rest(kv_publisher *p)
{
    zmq_pollitem_t items[2] = {{.fd = p->wake_fd, .events = ZMQ_POLLIN},
                               {.socket = p->router, .events = ZMQ_POLLIN}};
    uint64_t count;
    const bool waits = atomic_load(&p->wants_restating) && !atomic_load(&p->stop);
    if (zmq_poll(items, p->router ? 2 : 1, waits ? 100 : -1) > 0 && items[0].revents) {
        const ssize_t n = read(p->wake_fd, &count, sizeof count);
        (void)n; /* the queue is what counts */
    }
}

static void *publish_loop(void *arg)
{
    kv_publisher *p = arg;
    for (;;) {
        const bool stop = atomic_load(&p->stop); /* before the queue is looked at */
        kv_batch *b = NULL;
        for (int i = 0; i < BATCHES_A_TURN && (b = kv_queue_pop(&p->queue)); i++)
            publish(p, b);
        if (b) wake(p); /* more is to come, after a look at the others */
        if (!b && stop) return NULL;
        for (int i = 0; p->router && i < BATCHES_A_TURN && answer_request(p); i++)
            ;
        if (!b && atomic_load(&p->wants_restating)) tell_anew(p);
        if (!atomic_load(&p->stop)) rest(p);
    }
}

/* ---- life ---- */

static rad_status fail_zmq(rad_error *err, const char *what, const char *endpoint)
{
    return rad_fail(err, RAD_E_IO, "kv_events_config: cannot %s %s: %s", what, endpoint,
                    zmq_strerror(zmq_errno()));
}

/* *endpoint becomes what it is bound to, with the port that was chosen. */
static rad_status open_socket(kv_publisher *p, int type, int hwm, bool bind, char *endpoint,
                              size_t size, void **out, rad_error *err)
{
    const int linger = type == ZMQ_PUB ? LINGER_MS : 0, v6 = strchr(endpoint, '[') != NULL;
    const int64_t most = MOST_REQUEST_BYTES;
    void *s = *out = zmq_socket(p->context, type);
    if (!s) return fail_zmq(err, "open a socket for", endpoint);
    zmq_setsockopt(s, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(s, ZMQ_SNDHWM, &hwm, sizeof hwm);
    zmq_setsockopt(s, ZMQ_IPV6, &v6, sizeof v6);
    zmq_setsockopt(s, ZMQ_MAXMSGSIZE, &most, sizeof most);
    if (!bind) return zmq_connect(s, endpoint) ? fail_zmq(err, "connect to", endpoint) : RAD_OK;
    if (zmq_bind(s, endpoint) != 0) return fail_zmq(err, "bind", endpoint);
    (void)zmq_getsockopt(s, ZMQ_LAST_ENDPOINT, endpoint, &size);
    return RAD_OK;
}

static rad_status open_sockets(kv_publisher *p, rad_error *err)
{
    kv_events_config *c = &p->config;
    p->context = zmq_ctx_new();
    if (!p->context) return rad_fail(err, RAD_E_NOMEM, "kv_events_config: no memory for ZeroMQ");
    rad_status status = open_socket(p, ZMQ_PUB, (int)c->hwm, c->bind, c->endpoint,
                                    sizeof c->endpoint, &p->pub, err);
    if (status != RAD_OK || !*c->replay_endpoint) return status;
    return open_socket(p, ZMQ_ROUTER, (int)c->buffer_steps + 2, true, c->replay_endpoint,
                       sizeof c->replay_endpoint, &p->router, err);
}

rad_status kv_publisher_create(const rad_env *env, const kv_publisher_params *params,
                               kv_publisher **out, rad_error *err)
{
    *out = NULL;
    rad_env full = rad_env_or_default(env);
    kv_publisher *p = rad_alloc(&full, sizeof *p);
    if (!p) return rad_fail(err, RAD_E_NOMEM, "kv_events_config: no memory");
    p->env = full;
    p->config = *params->config;
    p->restate = params->restate;
    p->user = params->user;
    p->wake_fd = -1;
    const kv_wire_params wire = {.form = p->config.form,
                                 .dp_rank = p->config.dp_rank,
                                 .block_tokens = params->block_tokens,
                                 .on_batch = on_batch,
                                 .user = p};
    rad_status status = kv_wire_init(&p->wire, &full, &wire);
    if (status == RAD_OK)
        status = kv_queue_init(&p->queue, &full, p->config.max_queue_size, params->max_queue_bytes);
    p->kept = rad_alloc_sparse(&full, p->config.buffer_steps * sizeof *p->kept);
    if (status != RAD_OK || !p->kept)
        status = rad_fail(err, RAD_E_NOMEM, "kv_events_config: no memory");
    if (status == RAD_OK) status = open_sockets(p, err);
    if (status == RAD_OK && (p->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0)
        status = rad_fail(err, RAD_E_IO, "kv_events_config: no file for its thread: %s",
                          strerror(errno));
    if (status != RAD_OK) {
        kv_publisher_destroy(p);
        return status;
    }
    *out = p;
    return RAD_OK;
}

rad_status kv_publisher_start(kv_publisher *p, rad_error *err)
{
    if (compute_thread_create(&p->thread, publish_loop, p) != 0)
        return rad_fail(err, RAD_E_NOMEM, "kv_events_config: no more threads");
    p->started = true;
    return RAD_OK;
}

void kv_publisher_destroy(kv_publisher *p)
{
    if (!p) return;
    if (p->started) {
        atomic_store(&p->stop, true);
        wake(p);
        pthread_join(p->thread, NULL);
    }
    while (p->num_kept)
        forget_oldest(p);
    if (p->pub) zmq_close(p->pub);
    if (p->router) zmq_close(p->router);
    if (p->context) zmq_ctx_term(p->context); /* returns when all batches are free */
    if (p->wake_fd >= 0) close(p->wake_fd);
    if (p->kept) rad_free_sparse(&p->env, p->kept, p->config.buffer_steps * sizeof *p->kept);
    kv_queue_fini(&p->queue);
    kv_wire_fini(&p->wire, &p->env);
    rad_env env = p->env;
    rad_free(&env, p, sizeof *p);
}

const char *kv_publisher_endpoint(const kv_publisher *p)
{
    return p->config.endpoint;
}

const char *kv_publisher_replay_endpoint(const kv_publisher *p)
{
    return p->config.replay_endpoint;
}

#else

bool kv_publisher_is_built(void)
{
    return false;
}

rad_status kv_publisher_create(const rad_env *env, const kv_publisher_params *params,
                               kv_publisher **out, rad_error *err)
{
    (void)env;
    (void)params;
    *out = NULL;
    return rad_fail(err, RAD_E_UNSUPPORTED,
                    "kv_events_config: this radish was built without ZeroMQ (Debian: libzmq3-dev) "
                    "and publishes no KV events");
}

/* There is none to call these with. */
rad_status kv_publisher_start(kv_publisher *p, rad_error *err)
{
    (void)p;
    (void)err;
    return RAD_E_UNSUPPORTED;
}

void kv_publisher_destroy(kv_publisher *p)
{
    (void)p;
}

const char *kv_publisher_endpoint(const kv_publisher *p)
{
    (void)p;
    return "";
}

const char *kv_publisher_replay_endpoint(const kv_publisher *p)
{
    (void)p;
    return "";
}

void kv_publisher_add(void *publisher, const rad_kv_event *event)
{
    (void)publisher;
    (void)event;
}

void kv_publisher_flush(kv_publisher *p)
{
    (void)p;
}

void kv_publisher_begin_restating(kv_publisher *p)
{
    (void)p;
}

uint64_t kv_publisher_next_seq(const kv_publisher *p)
{
    (void)p;
    return 0;
}

void kv_publisher_get_stats(kv_publisher *p, kv_publisher_stats *stats)
{
    (void)p;
    *stats = (kv_publisher_stats){0};
}
#endif
