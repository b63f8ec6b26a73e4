/* test_cached_tokens.c - --report-cached-tokens: what an answer says of the cache is rounded for
 * each prompt, or not there, in usage, streams, /generate and figures alike; and nothing else in
 * an answer depends on the exact count. */
#include "server_rig.h"

static void start_reporting(struct fixture *f, report_cached_tokens how, uint32_t grain,
                            bool figures)
{
    fake_cached = FAKE_CACHED;
    fake_info.hierarchical_cache = true;
    fake_why = (req_why){.known = true,
                         .has_tiers = true,
                         .device = {.why = RAD_END_EVICTED, .evicted_tokens = 3, .policy = "lru"},
                         .host_tokens = 5,
                         .asked_tokens = 6,
                         .present_tokens = 1};
    start_with(f, (server_params){.report_cached_tokens = how,
                                  .cached_tokens_grain = grain,
                                  .report_cache_figures = figures});
}

static void stop_reporting(struct fixture *f)
{
    stop(f);
    fake_info.hierarchical_cache = false;
    fake_why = (req_why){0};
}

/* What of an answer does not change from one to the next: without ids and clocks. */
static char *without_clocks(json_t *json)
{
    json_t *meta = json_object_get(json, "meta_info");
    json_object_del(json, "id");
    json_object_del(json, "created");
    json_object_del(meta, "id");
    char *text = json_dumps(json, JSON_SORT_KEYS);
    CHECK(text != NULL);
    json_decref(json);
    return text;
}

static const char *const paths[] = {"/v1/completions", "/v1/chat/completions", "/generate"};
static const char *const bodies[] = {
    "{\"prompt\":\"abc\",\"max_tokens\":1%s}",
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":1%s}",
    "{\"text\":\"abc\",\"sampling_params\":{\"max_new_tokens\":1}%s}"};

/* The last event of a stream before [DONE]. */
static json_t *stream_end(const struct fixture *f, size_t dialect)
{
    char body[300];
    int status;
    snprintf(body, sizeof body, bodies[dialect],
             dialect < 2 ? ",\"stream\":true,\"stream_options\":{\"include_usage\":true}"
                         : ",\"stream\":true");
    char *text = ask_raw(f, "POST", paths[dialect], body, &status);
    CHECK(status == 200);
    json_t *json = event_at(text, count_events(text) - 2);
    CHECK(json != NULL);
    free(text);
    return json;
}

/* Counts of 4 to 7 tokens are all told as 4, and not a byte else differs. */
TEST(an_answer_depends_on_the_rounded_count_alone)
{
    struct fixture f;
    start_reporting(&f, REPORT_CACHED_ROUNDED, 4, false);
    for (size_t d = 0; d < 3; d++) {
        char body[300], *first[2] = {0};
        snprintf(body, sizeof body, bodies[d], "");
        for (fake_cached = 4; fake_cached < 8; fake_cached++) {
            fake_why.device.why = fake_cached % 2 ? RAD_END_COMPLETE : RAD_END_EVICTED;
            fake_why.device.evicted_tokens = fake_why.host_tokens = fake_cached;
            fake_drafts = (draft_counts){.steps = 4, .proposed[DRAFT_TREE] = fake_cached};
            char *now[2] = {without_clocks(ask(&f, "POST", paths[d], body, 200)),
                            without_clocks(stream_end(&f, d))};
            for (int i = 0; i < 2; i++) {
                CHECKF(!first[i] || !strcmp(first[i], now[i]), "%s\n%s\n", first[i], now[i]);
                CHECKF(strstr(now[i], "\"cached_tokens\": 4") && !strstr(now[i], "\"end\""), "%s\n",
                       now[i]);
                free(first[i]);
                first[i] = now[i];
            }
        }
        free(first[0]);
        free(first[1]);
    }
    fake_drafts = (draft_counts){0};
    stop_reporting(&f);
}

TEST(sums_are_of_rounded_counts_and_tiers_add_up)
{
    struct fixture f;
    start_reporting(&f, REPORT_CACHED_ROUNDED, 4, false);
    json_t *json = ask(&f, "POST", "/v1/completions",
                       "{\"prompt\":[\"a\",\"a\",\"a\"],\"max_tokens\":1}", 200);
    CHECK(cached_of(json) == 12); /* 3 * 7 would be 20 */
    json_decref(json);
    stop_reporting(&f);

    start_reporting(&f, REPORT_CACHED_ROUNDED, 2, false); /* 7, 2 of them loaded, 1 fetched */
    json = ask(&f, "POST", "/generate", "{\"text\":\"a\"}", 200);
    json_t *meta = json_object_get(json, "meta_info");
    json_t *tiers = json_object_get(meta, "cached_tokens_details");
    json_t *why = json_object_get(meta, "cache_explanation");
    CHECK(number(meta, "cached_tokens") == 6);
    CHECK(number(tiers, "device") == 4 && number(tiers, "host") == 2 && !number(tiers, "storage"));
    CHECK(number(json_object_get(why, "device"), "tokens") == 4);
    CHECK(json_object_size(json_object_get(why, "host")) == 1);
    json_decref(json);
    stop_reporting(&f);

    start_reporting(&f, REPORT_CACHED_ROUNDED, 0, false); /* 256 */
    fake_cached = 700;
    json = ask(&f, "POST", "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1}", 200);
    CHECK(cached_of(json) == 512);
    json_decref(json);
    stop_reporting(&f);
}

TEST(off_tells_nothing)
{
    struct fixture f;
    start_reporting(&f, REPORT_CACHED_OFF, 0, false);
    for (size_t d = 0; d < 3; d++) {
        char body[300], *text;
        snprintf(body, sizeof body, bodies[d], "");
        for (int stream = 0; stream < 2; stream++) {
            json_t *json = stream ? stream_end(&f, d) : ask(&f, "POST", paths[d], body, 200);
            json_t *usage = json_object_get(json, d < 2 ? "usage" : "meta_info");
            CHECK(json_is_null(
                json_object_get(usage, d < 2 ? "prompt_tokens_details" : "cached_tokens")));
            text = json_dumps(usage, 0);
            CHECKF(!strstr(text, "explanation") && !strstr(text, "cached_tokens_details"), "%s\n",
                   text);
            CHECK(number(usage, "prompt_tokens") > 0);
            free(text);
            json_decref(json);
        }
    }
    stop_reporting(&f);
}

/* Sums over all requests tell what one found, when they are read before and after it. */
TEST(figures_of_the_cache_are_told_with_exact_counts_or_on_demand)
{
    static const char *const tell[] = {
        "sglang:cached_tokens_total",   "mode=\"prefill_compute\"",
        "sglang:cache_hit_rate",        "sglang:kv_evictable_tokens",
        "sglang:kv_available_tokens",   "radish_forward_seconds_total",
        "sglang:load_back_tokens_total"};
    static const char *const tell_json[] = {"cached_tokens", "prefill_tokens", "evictable_tokens",
                                            "available_tokens", "fetched_tokens"};
    for (int told = 0; told < 3; told++) {
        struct fixture f;
        int status;
        start_reporting(&f, told == 1 ? REPORT_CACHED_EXACT : REPORT_CACHED_ROUNDED, 0, told == 2);
        char *text = ask_raw(&f, "GET", "/metrics", "", &status);
        CHECK(strstr(text, "sglang:prompt_tokens_total") &&
              strstr(text, "sglang:num_running_reqs"));
        for (size_t i = 0; i < RAD_COUNT(tell); i++)
            CHECKF((strstr(text, tell[i]) != NULL) == (told > 0), "%d: %s\n", told, tell[i]);
        free(text);
        json_t *json = ask(&f, "GET", "/server_info", "", 200);
        json_t *states = json_array_get(json_object_get(json, "internal_states"), 0);
        CHECK(number(states, "num_requests") == 0);
        for (size_t i = 0; i < RAD_COUNT(tell_json); i++)
            CHECK((json_object_get(states, tell_json[i]) != NULL) == (told > 0));
        json_decref(json);
        json_decref(ask(&f, "GET", "/hicache/storage-backend", "", 200));
        stop_reporting(&f);
    }
}

TEST_MAIN()
