/* fake_work.c - each stream is a queue; it is drained when somebody waits, as far as he waits for.
 *
 * A record is a moment in a stream: done when the queue has been drained past it. An event points
 * to its latest record, and a wait to the one that the event had when the wait was enqueued. To
 * pass a wait, the record's stream is drained that far: there is no other order between streams.
 *
 * A graph is the work of one or several streams in the order in which it was enqueued, and is
 * replayed in one stream in that order. */
#include "fake_work.h"
#include "fake_memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct work_record {
    int references;
    bool done;
    cuda_stream stream;
    long at; /* how much work had been done when it was reached */
};

typedef struct work_list {
    work *first, **end;
} work_list;

struct CUgraph_st {
    work_list list;
    struct CUgraph_st *next;
};

struct CUgraphExec_st {
    work_list list;
    struct CUgraphExec_st *next;
};

typedef struct capture {
    cuda_graph graph;
    cuda_stream origin;
    int mode;
    pthread_t thread;
    bool invalid;
    struct capture *next;
} capture;

struct CUstream_st {
    work_list queue;
    bool blocking; /* the default stream and this one wait for each other */
    capture *capture;
    bool unjoined; /* captured, and has work that the origin has not waited for */
    struct CUstream_st *next;
};

struct CUevent_st {
    work_record *record; /* NULL: never recorded */
    bool captured;       /* recorded last in a captured stream, */
    capture *capture;    /* of this; NULL: which is over */
    cuda_stream captured_in;
    bool timed;
    struct CUevent_st *next;
};

static struct CUstream_st default_stream = {.queue = {.end = &default_stream.queue.first},
                                            .blocking = true};
static struct CUstream_st *streams;
static struct CUevent_st *events;
static struct CUgraph_st *graphs;
static struct CUgraphExec_st *execs;
static capture *captures;
static long done, launches;
static int broken; /* what every call returns since a kernel went wrong */
static uint64_t order;
static tensor_core_model model;
static bool early, fences;
static cuda_stream chain; /* whose last launches may overlap: what was before them is remembered */

static void *allocate(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory) abort();
    memset(memory, 0, bytes);
    return memory;
}

/* ---- work ---- */

work *work_create(work_kind kind, const void *payload, size_t payload_bytes)
{
    work *w = allocate(sizeof *w + payload_bytes);
    w->kind = kind;
    w->payload_bytes = payload_bytes;
    if (payload_bytes) memcpy(w->payload, payload, payload_bytes);
    return w;
}

static void release_record(work_record *record)
{
    if (record && --record->references == 0) free(record);
}

static void work_destroy(work *w)
{
    if (w->kind == WORK_RECORD || w->kind == WORK_WAIT) release_record(w->record);
    free(w);
}

static work *work_copy(const work *from)
{
    work *w = allocate(sizeof *w + from->payload_bytes);
    memcpy(w, from, sizeof *w + from->payload_bytes);
    w->next = NULL;
    return w;
}

static void list_append(work_list *list, work *w)
{
    if (!list->end) list->end = &list->first;
    *list->end = w;
    list->end = &w->next;
}

static work *list_take(work_list *list)
{
    work *w = list->first;
    list->first = w->next;
    if (!list->first) list->end = &list->first;
    w->next = NULL;
    return w;
}

static void list_clear(work_list *list)
{
    while (list->first)
        work_destroy(list_take(list));
}

/* A launch that may begin early begins when the one before has begun, which may have begun early
 * itself: it may see memory as it was before the first of them all. */
static void begin_early(cuda_stream stream, const work *w, emulation *run)
{
    const work *next = stream->queue.first;
    if (chain == stream && w->launch.dependent) {
        run->num_stale = memory_compare(&run->stale);
    } else {
        chain = NULL;
        if (!next || next->kind != WORK_LAUNCH || !next->launch.dependent) return;
        memory_remember();
        chain = stream;
    }
}

static int run_launch(cuda_stream stream, const work *w)
{
    emulation run = w->launch.run;
    run.args = w->payload;
    run.order = order > 1 ? order + (uint64_t)launches * 2 : order;
    run.model = model;
    if (fences)
        run.num_shared = memory_share(&run.shared);
    else if (early)
        begin_early(stream, w, &run);
    launches++;
    const char *wrong = emulate(&run);
    if (!wrong && w->launch.dependent && !emulator_waits_for_previous())
        wrong = "no thread calls wait_previous, and it may begin early";
    if (!wrong) return CUDA_OK;
    fprintf(stderr, "libcuda-emulated: %s: %s\n", run.kernel, wrong);
    return CUDA_LAUNCH_FAILED;
}

static int drain_to(work_record *record);

/* Does the first piece of a queue and takes it off. */
static int step(cuda_stream stream)
{
    work *w = list_take(&stream->queue);
    int result = broken;
    if (!result) {
        if (w->kind != WORK_LAUNCH) chain = NULL;
        switch (w->kind) {
        case WORK_COPY:
            memmove(w->copy.to, w->copy.from ? w->copy.from : w->payload, w->copy.bytes);
            break;
        case WORK_SET: memset(w->set.to, w->set.value, w->set.bytes); break;
        case WORK_LAUNCH: result = run_launch(stream, w); break;
        case WORK_WAIT: result = drain_to(w->record); break;
        case WORK_RECORD: w->record->at = done; break;
        }
        done++;
    }
    if (w->kind == WORK_RECORD) w->record->done = true;
    work_destroy(w);
    if (result) broken = result;
    return result;
}

static int drain_to(work_record *record)
{
    int result = broken;
    while (!record->done && record->stream->queue.first) {
        int status = step(record->stream);
        if (!result) result = status;
    }
    return result;
}

/* ---- streams ---- */

static cuda_stream resolve(cuda_stream stream)
{
    return stream ? stream : &default_stream;
}

bool stream_exists(cuda_stream stream)
{
    if (!stream) return true;
    for (cuda_stream s = streams; s; s = s->next)
        if (s == stream) return true;
    return false;
}

int stream_create(cuda_stream *out, bool blocking)
{
    cuda_stream stream = allocate(sizeof *stream);
    stream->queue.end = &stream->queue.first;
    stream->blocking = blocking;
    stream->next = streams;
    *out = streams = stream;
    return CUDA_OK;
}

static int drain(cuda_stream stream)
{
    int result = broken;
    if (!stream->queue.first) return result; /* opening all of memory for nothing is dear */
    memory_window_begin();
    while (stream->queue.first) {
        int status = step(stream);
        if (!result) result = status;
    }
    memory_window_end();
    return result;
}

int stream_finish(cuda_stream stream)
{
    stream = resolve(stream);
    if (stream->capture) {
        stream->capture->invalid = true;
        return FAKE_CAPTURE_UNSUPPORTED;
    }
    if (stream == &default_stream) return streams_finish_all();
    return drain(stream);
}

int streams_finish_all(void)
{
    int result = drain(&default_stream);
    for (cuda_stream s = streams; s; s = s->next) {
        int status = drain(s);
        if (!result) result = status;
    }
    return result;
}

int stream_progress(cuda_stream stream)
{
    stream = resolve(stream);
    if (stream->capture) {
        stream->capture->invalid = true;
        return FAKE_CAPTURE_UNSUPPORTED;
    }
    if (broken || !stream->queue.first) return broken;
    memory_window_begin();
    int result = step(stream);
    memory_window_end();
    return result ? result : stream->queue.first ? CUDA_NOT_READY : CUDA_OK;
}

int stream_destroy(cuda_stream stream)
{
    if (!stream || !stream_exists(stream)) return FAKE_INVALID_HANDLE;
    if (stream->capture) return FAKE_CAPTURE_UNSUPPORTED;
    (void)drain(stream);
    cuda_stream *link = &streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    free(stream);
    return CUDA_OK;
}

bool stream_is_captured(cuda_stream stream)
{
    return resolve(stream)->capture != NULL;
}

int stream_enqueue(cuda_stream stream, work *w)
{
    stream = resolve(stream);
    if (broken) {
        work_destroy(w);
        return broken;
    }
    if (stream->capture) {
        list_append(&stream->capture->graph->list, w);
        stream->unjoined = stream != stream->capture->origin;
        return CUDA_OK;
    }
    list_append(&stream->queue, w);
    /* The default stream and the blocking ones stand behind each other: done by doing it. */
    if (stream == &default_stream) {
        for (cuda_stream s = streams; s; s = s->next)
            if (s->blocking && !s->capture) (void)drain(s);
        return drain(&default_stream);
    }
    return CUDA_OK;
}

/* ---- events ---- */

static bool event_exists(cuda_event event)
{
    for (cuda_event e = events; e; e = e->next)
        if (e == event) return true;
    return false;
}

int event_create(cuda_event *out, bool timed)
{
    cuda_event event = allocate(sizeof *event);
    event->timed = timed;
    event->next = events;
    *out = events = event;
    return CUDA_OK;
}

int event_destroy(cuda_event event)
{
    if (!event || !event_exists(event)) return FAKE_INVALID_HANDLE;
    cuda_event *link = &events;
    while (*link != event)
        link = &(*link)->next;
    *link = event->next;
    release_record(event->record);
    free(event);
    return CUDA_OK;
}

int event_record(cuda_event event, cuda_stream stream)
{
    if (!event_exists(event)) return FAKE_INVALID_HANDLE;
    stream = resolve(stream);
    if (stream->capture) { /* order inside the graph is the order of enqueuing */
        event->captured = true;
        event->capture = stream->capture;
        event->captured_in = stream;
        return CUDA_OK;
    }
    event->captured = false;
    work_record *record = allocate(sizeof *record);
    *record = (work_record){.references = 2, .stream = stream};
    release_record(event->record);
    event->record = record;
    work *w = work_create(WORK_RECORD, NULL, 0);
    w->record = record;
    return stream_enqueue(stream, w);
}

int event_wait(cuda_stream stream, cuda_event event)
{
    if (!event_exists(event)) return FAKE_INVALID_HANDLE;
    stream = resolve(stream);
    if (event->captured) {
        if (!event->capture) return FAKE_CAPTURED_EVENT;
        if (stream->capture && stream->capture != event->capture) return FAKE_CAPTURE_ISOLATION;
        if (event->captured_in != stream) event->captured_in->unjoined = false;
        stream->capture = event->capture;
        return CUDA_OK;
    }
    if (stream->capture) {
        stream->capture->invalid = true;
        return FAKE_CAPTURE_ISOLATION;
    }
    if (!event->record || event->record->done) return CUDA_OK;
    work *w = work_create(WORK_WAIT, NULL, 0);
    w->record = event->record;
    w->record->references++;
    return stream_enqueue(stream, w);
}

int event_finish(cuda_event event)
{
    if (!event_exists(event)) return FAKE_INVALID_HANDLE;
    if (event->captured) return FAKE_CAPTURED_EVENT;
    if (!event->record || event->record->done) return broken;
    memory_window_begin();
    int result = drain_to(event->record);
    memory_window_end();
    return result;
}

int event_progress(cuda_event event)
{
    if (!event_exists(event)) return FAKE_INVALID_HANDLE;
    if (event->captured) return FAKE_CAPTURED_EVENT;
    if (broken || !event->record || event->record->done) return broken;
    memory_window_begin();
    int result = step(event->record->stream);
    memory_window_end();
    return result ? result : event->record->done ? CUDA_OK : CUDA_NOT_READY;
}

/* A piece of work takes a millisecond. */
int event_elapsed(cuda_event begin, cuda_event end, float *milliseconds)
{
    if (!event_exists(begin) || !event_exists(end) || !begin->timed || !end->timed ||
        !begin->record || !end->record)
        return FAKE_INVALID_HANDLE;
    if (!begin->record->done || !end->record->done) return CUDA_NOT_READY;
    *milliseconds = (float)(end->record->at - begin->record->at);
    return CUDA_OK;
}

/* ---- graphs ---- */

int capture_begin(cuda_stream stream, int mode)
{
    if (!stream || stream->capture) return CUDA_INVALID_VALUE;
    capture *c = allocate(sizeof *c);
    c->graph = allocate(sizeof *c->graph);
    c->origin = stream;
    c->mode = mode;
    c->thread = pthread_self();
    c->next = captures;
    captures = stream->capture = c;
    return CUDA_OK;
}

static void capture_forget(capture *c)
{
    for (cuda_stream s = streams; s; s = s->next)
        if (s->capture == c) {
            s->capture = NULL;
            s->unjoined = false;
        }
    for (cuda_event e = events; e; e = e->next)
        if (e->capture == c) e->capture = NULL;
    capture **link = &captures;
    while (*link != c)
        link = &(*link)->next;
    *link = c->next;
    free(c);
}

int capture_end(cuda_stream stream, cuda_graph *out)
{
    *out = NULL;
    capture *c = stream ? stream->capture : NULL;
    if (!c) return CUDA_INVALID_VALUE;
    if (c->origin != stream) return FAKE_CAPTURE_UNMATCHED;
    if (c->mode != CUDA_CAPTURE_RELAXED && !pthread_equal(c->thread, pthread_self()))
        return FAKE_CAPTURE_WRONG_THREAD;
    int result = c->invalid ? FAKE_CAPTURE_INVALIDATED : CUDA_OK;
    for (cuda_stream s = streams; s && !result; s = s->next)
        if (s->capture == c && s->unjoined) result = FAKE_CAPTURE_UNJOINED;
    cuda_graph graph = c->graph;
    capture_forget(c);
    if (result) {
        list_clear(&graph->list);
        free(graph);
        return result;
    }
    graph->next = graphs;
    *out = graphs = graph;
    return CUDA_OK;
}

int capture_refuses(void)
{
    for (capture *c = captures; c; c = c->next) {
        bool mine = pthread_equal(c->thread, pthread_self());
        if (c->mode == CUDA_CAPTURE_GLOBAL || (c->mode == CUDA_CAPTURE_THREAD_LOCAL && mine)) {
            c->invalid = true;
            return FAKE_CAPTURE_UNSUPPORTED;
        }
    }
    return CUDA_OK;
}

int capture_breaks(cuda_stream stream)
{
    resolve(stream)->capture->invalid = true;
    return FAKE_CAPTURE_UNSUPPORTED;
}

static bool graph_exists(cuda_graph graph)
{
    for (cuda_graph g = graphs; g; g = g->next)
        if (g == graph) return true;
    return false;
}

static bool exec_exists(cuda_graph_exec exec)
{
    for (cuda_graph_exec e = execs; e; e = e->next)
        if (e == exec) return true;
    return false;
}

int graph_destroy(cuda_graph graph)
{
    if (!graph_exists(graph)) return FAKE_INVALID_HANDLE;
    cuda_graph *link = &graphs;
    while (*link != graph)
        link = &(*link)->next;
    *link = graph->next;
    list_clear(&graph->list);
    free(graph);
    return CUDA_OK;
}

int graph_instantiate(cuda_graph graph, cuda_graph_exec *out)
{
    if (!graph_exists(graph)) return FAKE_INVALID_HANDLE;
    cuda_graph_exec exec = allocate(sizeof *exec);
    for (const work *w = graph->list.first; w; w = w->next)
        list_append(&exec->list, work_copy(w));
    exec->next = execs;
    *out = execs = exec;
    return CUDA_OK;
}

int graph_launch(cuda_graph_exec exec, cuda_stream stream)
{
    if (!exec_exists(exec)) return FAKE_INVALID_HANDLE;
    int result = broken;
    for (const work *w = exec->list.first; w && !result; w = w->next)
        result = stream_enqueue(stream, work_copy(w));
    return result;
}

int graph_exec_destroy(cuda_graph_exec exec)
{
    if (!exec_exists(exec)) return FAKE_INVALID_HANDLE;
    cuda_graph_exec *link = &execs;
    while (*link != exec)
        link = &(*link)->next;
    *link = exec->next;
    list_clear(&exec->list);
    free(exec);
    return CUDA_OK;
}

/* ---- all of it ---- */

size_t work_objects(void)
{
    size_t count = 0;
    for (cuda_stream s = streams; s; s = s->next)
        count++;
    for (cuda_event e = events; e; e = e->next)
        count++;
    for (cuda_graph g = graphs; g; g = g->next)
        count++;
    for (cuda_graph_exec e = execs; e; e = e->next)
        count++;
    return count;
}

long work_launches(void)
{
    return launches;
}

void work_set_machine(uint64_t new_order, tensor_core_model new_model, bool new_early,
                      bool new_fences)
{
    order = new_order;
    model = new_model;
    early = new_early;
    fences = new_fences;
}

void work_reset(void)
{
    broken = CUDA_LAUNCH_FAILED; /* what is still enqueued is not done */
    while (captures) {
        cuda_graph graph = captures->graph;
        capture_forget(captures);
        list_clear(&graph->list);
        free(graph);
    }
    while (streams)
        (void)stream_destroy(streams);
    while (events)
        (void)event_destroy(events);
    while (graphs)
        (void)graph_destroy(graphs);
    while (execs)
        (void)graph_exec_destroy(execs);
    broken = CUDA_OK;
    chain = NULL;
    done = launches = 0;
}
