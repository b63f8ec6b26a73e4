/* fake_work.h - streams, events and graphs of the fake driver: work that is done late. Callers hold
 * the driver's lock. Functions return a cuda_result. */
#ifndef TESTS_CUDA_FAKE_WORK_H
#define TESTS_CUDA_FAKE_WORK_H

#include "device/cuda_driver.h"
#include "emulator.h"

#include <stdbool.h>

/* What the public list of results lacks. */
enum {
    FAKE_CAPTURE_UNSUPPORTED = 900,
    FAKE_CAPTURE_INVALIDATED = 901,
    FAKE_CAPTURE_UNMATCHED = 903,
    FAKE_CAPTURE_UNJOINED = 904,
    FAKE_CAPTURE_ISOLATION = 905,
    FAKE_CAPTURED_EVENT = 907,
    FAKE_CAPTURE_WRONG_THREAD = 908,
    FAKE_INVALID_HANDLE = 400
};

typedef enum work_kind { WORK_COPY, WORK_SET, WORK_LAUNCH, WORK_RECORD, WORK_WAIT } work_kind;

typedef struct work_record work_record; /* one moment of a stream, which events stand for */

typedef struct work {
    struct work *next;
    work_kind kind;
    union {
        struct {
            void *to;
            const void *from; /* NULL: the bytes behind this struct */
            size_t bytes;
        } copy;
        struct {
            void *to;
            size_t bytes;
            unsigned char value;
        } set;
        struct {
            emulation run; /* its args are the bytes behind this struct */
            bool dependent;
        } launch;
        work_record *record;
    };
    size_t payload_bytes;
    unsigned char payload[] __attribute__((aligned(64)));
} work;

work *work_create(work_kind kind, const void *payload, size_t payload_bytes);

/* Takes `w` over. A stream that is captured keeps it for its graph. */
int stream_enqueue(cuda_stream stream, work *w);
bool stream_is_captured(cuda_stream stream);

int stream_create(cuda_stream *out, bool blocking);
int stream_destroy(cuda_stream stream); /* after its work */
bool stream_exists(cuda_stream stream); /* NULL, the default one, always does */
int stream_finish(cuda_stream stream);
int stream_progress(cuda_stream stream); /* one piece; CUDA_NOT_READY: there is more */
int streams_finish_all(void);

int event_create(cuda_event *out, bool timed);
int event_destroy(cuda_event event);
int event_record(cuda_event event, cuda_stream stream);
int event_wait(cuda_stream stream, cuda_event event);
int event_finish(cuda_event event);
int event_progress(cuda_event event);
int event_elapsed(cuda_event begin, cuda_event end, float *milliseconds);

int capture_begin(cuda_stream stream, int mode);
int capture_end(cuda_stream stream, cuda_graph *out);
/* What may not be called while this thread, or in global mode any, captures. */
int capture_refuses(void);
int capture_breaks(cuda_stream stream); /* by what it cannot hold */
int graph_destroy(cuda_graph graph);
int graph_instantiate(cuda_graph graph, cuda_graph_exec *out);
int graph_launch(cuda_graph_exec exec, cuda_stream stream);
int graph_exec_destroy(cuda_graph_exec exec);

size_t work_objects(void); /* streams, events, graphs that exist */
long work_launches(void);
void work_set_machine(uint64_t order, tensor_core_model model, bool early, bool fences);
void work_reset(void);

#endif
