/* device_cuda_lane.c - what a thread copies by: a stream, and rings in pinned memory.
 *
 *     numbers   | half 0: written, uploaded ... | half 1: written, being uploaded  |    |
 *                                                                       used ^
 *
 * A half is written again when its last upload is done (`uploaded`). The GPU's copy of it needs no
 * such wait: an upload stands in the stream behind the kernels that read what was there. */
#include "device/device_cuda_impl.h"

enum { QUERIES = 256 /* before a wait sleeps; a fence is mostly short */ };

static cuda_lane *common_lane(device_cuda *d)
{
    return &d->lanes[LANES];
}

/* Sleeping and waking takes longer than most copies of a layer: first it looks for a while. */
rad_status lane_wait_event(device_cuda *d, cuda_event event)
{
    int result = CUDA_NOT_READY;
    for (int i = 0; i < QUERIES && result == CUDA_NOT_READY; i++)
        result = d->cu.event_query(event);
    if (result == CUDA_NOT_READY) result = d->cu.event_synchronize(event);
    return device_cuda_check(d, result, "cuEventSynchronize");
}

rad_status lane_wait(device_cuda *d, cuda_lane *lane)
{
    int result = d->cu.event_record(lane->done, lane->stream);
    rad_status status = device_cuda_check(d, result, "cuEventRecord");
    if (!status) status = lane_wait_event(d, lane->done);
    if (status) { /* whatever failed, the caller's memory must not be written later */
        (void)d->cu.stream_synchronize(lane->stream);
        return status;
    }
    for (int i = 0; i < LANE_HALVES; i++)
        lane->uploading[i] = lane->staging[i] = false;
    return RAD_OK;
}

static rad_status make_event(device_cuda *d, cuda_event *event)
{
    unsigned flags = CUDA_EVENT_DISABLE_TIMING | CUDA_EVENT_BLOCKING_SYNC;
    return device_cuda_check(d, d->cu.event_create(event, flags), "cuEventCreate");
}

static rad_status alloc_pinned(device_cuda *d, size_t bytes, void **out)
{
    unsigned flags = CUDA_HOST_PORTABLE | CUDA_HOST_MAPPED;
    return device_cuda_check(d, d->cu.host_alloc(out, bytes, flags), "cuMemHostAlloc");
}

/* Half made it is the next thread's, who goes on. */
static rad_status lane_make(device_cuda *d, cuda_lane *lane)
{
    size_t bytes = sizeof *lane->numbers * LANE_HALVES * INDEX_HALF;
    rad_status status = RAD_OK;
    if (!lane->stream)
        status = device_cuda_check(
            d, d->cu.stream_create_priority(&lane->stream, CUDA_STREAM_NON_BLOCKING, d->priority),
            "cuStreamCreateWithPriority");
    if (!status && !lane->done) status = make_event(d, &lane->done);
    for (int i = 0; i < LANE_HALVES && !status; i++) {
        if (!lane->uploaded[i]) status = make_event(d, &lane->uploaded[i]);
        if (!status && !lane->staged[i]) status = make_event(d, &lane->staged[i]);
    }
    if (!status && !lane->numbers) {
        void *numbers;
        status = alloc_pinned(d, bytes, &numbers);
        if (!status) lane->numbers = numbers;
    }
    if (!status && !lane->on_gpu) {
        cuda_ptr on_gpu;
        status = device_cuda_check(d, d->cu.mem_alloc(&on_gpu, bytes), "cuMemAlloc");
        if (!status) lane->on_gpu = on_gpu;
    }
    lane->made = !status;
    return status;
}

void lane_fini(device_cuda *d, cuda_lane *lane)
{
    if (lane->stream) (void)d->cu.stream_synchronize(lane->stream);
    if (lane->on_gpu) (void)d->cu.mem_free(lane->on_gpu);
    if (lane->numbers) (void)d->cu.host_free(lane->numbers);
    if (lane->stage) (void)d->cu.host_free(lane->stage);
    for (int i = 0; i < LANE_HALVES; i++) {
        if (lane->uploaded[i]) (void)d->cu.event_destroy(lane->uploaded[i]);
        if (lane->staged[i]) (void)d->cu.event_destroy(lane->staged[i]);
    }
    if (lane->done) (void)d->cu.event_destroy(lane->done);
    if (lane->stream) (void)d->cu.stream_destroy(lane->stream);
    *lane = (cuda_lane){0};
}

cuda_lane *lane_of_thread(device_cuda *d)
{
    cuda_lane *found = NULL;
    pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; i < LANES && !found; i++)
        if (d->lanes[i].taken && pthread_equal(d->lanes[i].thread, pthread_self()))
            found = &d->lanes[i];
    pthread_mutex_unlock(&d->lock);
    return found;
}

/* One that was made already, where there is such a one. NULL: all are out. */
static cuda_lane *take_free(device_cuda *d)
{
    cuda_lane *found = NULL;
    pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; i < LANES; i++) {
        cuda_lane *lane = &d->lanes[i];
        if (!lane->taken && (!found || (lane->made && !found->made))) found = lane;
    }
    if (found) {
        found->taken = true;
        found->thread = pthread_self();
    }
    pthread_mutex_unlock(&d->lock);
    return found;
}

void lane_release(device_cuda *d, cuda_lane *lane)
{
    pthread_mutex_lock(&d->lock);
    lane->taken = false;
    pthread_mutex_unlock(&d->lock);
}

/* What the stream enqueues from now on is behind what was said to copy_after. The number is read
 * first: what is recorded meanwhile, the next copy waits for again. */
static rad_status follow_order(device_cuda *d, cuda_lane *lane)
{
    uint64_t order = atomic_load(&d->order);
    if (order == lane->after) return RAD_OK;
    int result = d->cu.stream_wait_event(lane->stream, d->order_event, 0);
    if (result == CUDA_OK) lane->after = order;
    return device_cuda_check(d, result, "cuStreamWaitEvent");
}

cuda_lane *lane_enter(device_cuda *d, rad_status *status)
{
    cuda_lane *lane = lane_of_thread(d);
    bool fresh = !lane;
    if (fresh) lane = take_free(d);
    if (!lane) {
        lane = common_lane(d);
        pthread_mutex_lock(&d->common);
    }
    *status = lane->made ? RAD_OK : lane_make(d, lane);
    if (!*status) *status = follow_order(d, lane);
    if (!*status) return lane;
    if (lane == common_lane(d))
        pthread_mutex_unlock(&d->common);
    else if (fresh)
        lane_release(d, lane);
    return NULL;
}

rad_status lane_leave(device_cuda *d, cuda_lane *lane, rad_status status)
{
    if (lane != common_lane(d)) return status;
    rad_status done = lane_wait(d, lane);
    pthread_mutex_unlock(&d->common);
    return status ? status : done;
}

/* The other half, once what was uploaded from there has gone. */
static rad_status turn(device_cuda *d, cuda_lane *lane)
{
    int result = d->cu.event_record(lane->uploaded[lane->half], lane->stream);
    rad_status status = device_cuda_check(d, result, "cuEventRecord");
    if (status) return status;
    lane->uploading[lane->half] = true;
    uint32_t next = (lane->half + 1) % LANE_HALVES;
    if (lane->uploading[next]) status = lane_wait_event(d, lane->uploaded[next]);
    if (status) return status;
    lane->uploading[next] = false;
    for (int side = 0; side < 2; side++)
        if (lane->last[side].half == next) lane->last[side].count = 0;
    lane->half = next;
    lane->used = 0;
    return RAD_OK;
}

rad_status lane_reserve(device_cuda *d, cuda_lane *lane, uint32_t count)
{
    return count > INDEX_HALF - lane->used ? turn(d, lane) : RAD_OK;
}

rad_status lane_upload_numbers(device_cuda *d, cuda_lane *lane, int side, const int32_t *numbers,
                               uint32_t count, cuda_ptr *out)
{
    size_t bytes = count * sizeof *numbers;
    lane_upload *last = &lane->last[side];
    size_t at = (size_t)last->half * INDEX_HALF + last->at;
    if (last->count != count || memcmp(lane->numbers + at, numbers, bytes) != 0) {
        RAD_ASSERT_ENV(&d->env, count <= INDEX_HALF - lane->used);
        at = (size_t)lane->half * INDEX_HALF + lane->used;
        memcpy(lane->numbers + at, numbers, bytes);
        last->count = 0;
        rad_status status =
            device_cuda_check(d,
                              d->cu.copy_to_device(lane->on_gpu + at * sizeof *numbers,
                                                   lane->numbers + at, bytes, lane->stream),
                              "cuMemcpyHtoDAsync");
        if (status) return status;
        *last = (lane_upload){.half = lane->half, .at = lane->used, .count = count};
        lane->used += count;
    }
    *out = lane->on_gpu + at * sizeof *numbers;
    return RAD_OK;
}

rad_status lane_stage(device_cuda *d, cuda_lane *lane)
{
    void *stage;
    if (lane->stage) return RAD_OK;
    rad_status status = alloc_pinned(d, (size_t)LANE_HALVES * STAGE_HALF, &stage);
    if (!status) lane->stage = stage;
    return status;
}
