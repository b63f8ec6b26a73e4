/* record_format.c - the tables of the format. */
#include "trace/record_format.h"

#include <stddef.h>

static const record_shape shapes[RECORD_KINDS] = {
    [RECORD_NAMESPACE] = {"namespace", 1, false},
    [RECORD_ARRIVE] = {"arrive", 5, true},
    [RECORD_GROW] = {"grow", 2, true},
    [RECORD_MATCH] = {"match", 3, false},
    [RECORD_BEGIN] = {"begin", 2, false},
    [RECORD_DROP] = {"drop", 1, false},
    [RECORD_ADMIT] = {"admit", 5, false},
    [RECORD_UNFINISHED] = {"unfinished", 7, false},
    [RECORD_FINISHED] = {"finished", 6, false},
    [RECORD_WINDOW] = {"window", 4, false},
    [RECORD_EVICT_WINDOW] = {"evict_window", 2, false},
    [RECORD_PUT_STATE] = {"put_state", 3, false},
    [RECORD_EVICT_STATE] = {"evict_state", 2, false},
    [RECORD_EVICT] = {"evict", 2, false},
    [RECORD_RELEASE_IDLE] = {"release_idle", 2, false},
    [RECORD_OPEN] = {"open", 2, false},
    [RECORD_CLOSE] = {"close", 2, false},
    [RECORD_PIN] = {"pin", 3, false},
    [RECORD_RETAIN] = {"retain", 4, false},
    [RECORD_RESET] = {"reset", 0, false},
    [RECORD_LEAVE] = {"leave", 3, false},
    [RECORD_COUNTERS] = {"counters", 7, false},
    [RECORD_PRICES] = {"prices", 4, false},
    [RECORD_LOST] = {"lost", 1, false},
    [RECORD_INEXACT] = {"inexact", 1, false},
    [RECORD_POLL] = {"poll", 1, false},
    [RECORD_COMPLETED] = {"completed", 3, false},
    [RECORD_LOAD] = {"load", 6, false},
    [RECORD_READY] = {"ready", 0, false},
    [RECORD_LOADED] = {"loaded", 2, false},
    [RECORD_CLEAR] = {"clear", 2, false},
    [RECORD_TIER_COUNTERS] = {"tier_counters", 8, false},
    [RECORD_PIN_KEY] = {"pin_key", 3, true},
};

const record_shape *record_shape_of(unsigned kind)
{
    return kind < RECORD_KINDS && shapes[kind].name ? &shapes[kind] : NULL;
}

const char *record_inexact_name(unsigned why)
{
    static const char *const names[RECORD_INEXACT_REASONS] = {
        [RECORD_INEXACT_NONE] = "nothing",
        [RECORD_INEXACT_TIERS] = ("the cache had tiers below the device with a store, windows or "
                                  "states"),
        [RECORD_INEXACT_KEPT] = "prefixes were pinned or retained while there was a host tier",
        [RECORD_INEXACT_CHUNK] = "the server ran without a prefix cache",
        [RECORD_INEXACT_TURNS] = "streaming sessions compare tokens within a page, and keep states",
    };
    return why < RECORD_INEXACT_REASONS ? names[why] : "something that this radish does not know";
}

#define LINE(key, least, most)                                                                     \
    {                                                                                              \
#key, offsetof(record_head, key), least, most                                              \
    }

static const record_head_line lines[] = {
    LINE(started_s, 0, UINT64_MAX),
    LINE(max_total_tokens, 1, INT32_MAX),
    LINE(max_pinned_tokens, 0, INT32_MAX),
    LINE(host_tokens, 0, UINT64_MAX),
    LINE(write_policy, 0, 2),
    LINE(load_back_threshold, 0, INT32_MAX),
    LINE(max_transfers, 0, UINT16_MAX),
    LINE(demote_tokens, 0, UINT64_MAX),
    LINE(prefetch_tokens, 0, UINT64_MAX),
    LINE(host_max_pinned_tokens, 0, UINT64_MAX),
    LINE(host_policy, 0, 255),
    LINE(host_protected_threshold, 0, UINT32_MAX),
    LINE(host_cost_half_life_percent, 0, UINT32_MAX),
    LINE(host_cost_attention_tokens, 0, UINT32_MAX),
    LINE(page_size, 1, 1 << 20),
    LINE(chunk, 0, 1),
    LINE(policy, 0, 255),
    LINE(protected_threshold, 0, UINT32_MAX),
    LINE(cost_half_life_percent, 0, UINT32_MAX),
    LINE(cost_attention_tokens, 0, UINT32_MAX),
    LINE(max_namespaces, 0, UINT32_MAX),
    LINE(max_sessions, 0, UINT16_MAX),
    LINE(streaming_sessions, 0, 1),
    LINE(retention, 0, 1),
    LINE(max_rows, 1, 1 << 24),
    LINE(row_tokens, 1, RECORD_MOST_TOKENS),
    LINE(window, 0, INT32_MAX),
    LINE(window_tokens, 0, INT32_MAX),
    LINE(states, 0, INT32_MAX - 1),
};

const record_head_line *record_head_lines(size_t *count)
{
    *count = RAD_COUNT(lines);
    return lines;
}
