/* latency.c - see latency.h. */
#include "engine/latency.h"

const char *const latency_names[LATENCY_KINDS] = {"queue", "first_token", "inter_token",
                                                  "end_to_end"};

const double latency_bounds[LATENCY_BOUNDS] = {
    0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03,
    0.035,  0.04,  0.05,   0.06,  0.08,  0.1,   0.15,  0.2,   0.3,  0.4,   0.5,  0.6,   0.8,
    1,      1.5,   2,      3,     4,     5,     6,     8,     10,   15,    20,   30,    40,
    50,     60,    80,     100,   150,   200,   300,   400,   600,  900,   1200, 1800,  2400};

void latency_add(latency_counters *c, latency_kind kind, uint64_t ns)
{
    const double seconds = (double)ns * 1e-9;
    uint32_t low = 0, high = LATENCY_BOUNDS; /* the first bound that is not below it */
    while (low < high) {
        const uint32_t mid = (low + high) / 2;
        if (latency_bounds[mid] < seconds)
            low = mid + 1;
        else
            high = mid;
    }
    atomic_fetch_add_explicit(&c->counts[kind][low], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->sum_ns[kind], ns, memory_order_relaxed);
}

void latency_get(const latency_counters *c, latency_kind kind, latency_histogram *out)
{
    *out =
        (latency_histogram){.sum_ns = atomic_load_explicit(&c->sum_ns[kind], memory_order_relaxed)};
    for (uint32_t i = 0; i <= LATENCY_BOUNDS; i++) {
        out->counts[i] = atomic_load_explicit(&c->counts[kind][i], memory_order_relaxed);
        out->count += out->counts[i];
    }
}
