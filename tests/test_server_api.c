/* test_server_api.c - HTTP in, events out: what completions, chat and generate answer, in
 * which form, and which words a bad request gets; against a scripted engine. */
#include "server_rig.h"

#include "server/sessions.h"

__attribute__((constructor)) static void limit_buffers(void)
{
    server_limit_buffers(64 << 20);
}

/* ---- completions ---- */

TEST(a_completion_carries_text_ids_and_usage)
{
    struct fixture f;
    start(&f, 0);
    json_t *json = ask(&f, "POST", "/v1/completions",
                       "{\"prompt\":[1,2,3],\"max_tokens\":3,\"temperature\":0,\"seed\":5,"
                       "\"return_token_ids\":true,\"extra_key\":\"k\",\"cache_salt\":\"s\"}",
                       200);
    CHECK(says(choice_of(json, 0), "text", "t0 t1 t2 "));
    CHECK(says(choice_of(json, 0), "finish_reason", "length"));
    CHECK(says(json, "object", "text_completion"));
    CHECK(says(json, "model", "fake \"model\""));
    json_t *ids = json_object_get(choice_of(json, 0), "token_ids");
    CHECK(json_array_size(ids) == 3 && json_integer_value(json_array_get(ids, 2)) == 102);
    CHECK(number(json_object_get(json, "usage"), "prompt_tokens") == 3);
    CHECK(number(json_object_get(json, "usage"), "total_tokens") == 6);
    CHECK(cached_of(json) == FAKE_CACHED);
    CHECK(f.engine->last.sampling.temperature == 0 && f.engine->last.sampling.seed == 5);
    CHECK(f.engine->last.has_seed && f.engine->last.sampling.top_p == 1);
    CHECK(strcmp(f.engine->last_words, "k|s") == 0);
    json_decref(json);
    stop(&f);
}

TEST(defaults_are_openais)
{
    struct fixture f;
    start(&f, 0);
    json_t *json = ask(&f, "POST", "/v1/completions", "{\"prompt\":\"hello\"}", 200);
    CHECK(number(json_object_get(json, "usage"), "completion_tokens") == 16);
    CHECK(json_object_get(choice_of(json, 0), "token_ids") == NULL);
    CHECK(f.engine->last.sampling.temperature == 1 && !f.engine->last.has_seed);
    json_decref(json);
    stop(&f);
}

TEST(a_batch_answers_by_index_and_sums_its_usage)
{
    struct fixture f;
    start(&f, 0);
    json_t *json = ask(&f, "POST", "/v1/completions",
                       "{\"prompt\":[\"ab\",\"slow\",\"abcdef\"],\"max_tokens\":2}", 200);
    CHECK(json_array_size(json_object_get(json, "choices")) == 3);
    for (size_t i = 0; i < 3; i++)
        CHECK(number(choice_of(json, i), "index") == (json_int_t)i);
    CHECK(number(json_object_get(json, "usage"), "prompt_tokens") == 12);
    CHECK(number(json_object_get(json, "usage"), "completion_tokens") == 6);
    CHECK(cached_of(json) == 3 * FAKE_CACHED);
    json_decref(json);
    json = ask(&f, "POST", "/v1/completions", "{\"prompt\":[[1],[2,3]],\"max_tokens\":1}", 200);
    CHECK(json_array_size(json_object_get(json, "choices")) == 2);
    json_decref(json);
    stop(&f);
}

TEST(a_stream_adds_up_and_ends_with_usage_when_asked)
{
    struct fixture f;
    int status;
    start(&f, 0);
    char *text = ask_raw(&f, "POST", "/v1/completions",
                         "{\"prompt\":[1,2],\"max_tokens\":40,\"stream\":true,"
                         "\"return_token_ids\":true,\"stream_options\":{\"include_usage\":true}}",
                         &status);
    CHECK(status == 200);
    char all[1024] = "";
    size_t ids = 0;
    int n = count_events(text), finishes = 0;
    for (int i = 0; i < n - 2; i++) {
        json_t *json = event_at(text, i);
        CHECK(json_is_null(json_object_get(json, "usage")));
        strcat(all, text_of(choice_of(json, 0), "text"));
        ids += json_array_size(json_object_get(choice_of(json, 0), "token_ids"));
        finishes += json_is_string(json_object_get(choice_of(json, 0), "finish_reason"));
        json_decref(json);
    }
    CHECK(ids == 40 && finishes == 1);
    CHECK(strncmp(all, "t0 t1 t2 ", 9) == 0 && strcmp(all + strlen(all) - 4, "t39 ") == 0);
    json_t *usage = event_at(text, n - 2);
    CHECK(json_array_size(json_object_get(usage, "choices")) == 0);
    CHECK(cached_of(usage) == FAKE_CACHED);
    CHECK(number(json_object_get(usage, "usage"), "completion_tokens") == 40);
    CHECK(strcmp(text + strlen(text) - 14, "data: [DONE]\n\n") == 0);
    json_decref(usage);
    free(text);

    text = ask_raw(&f, "POST", "/v1/completions", "{\"prompt\":\"a\",\"stream\":true}", &status);
    CHECK(status == 200 && strstr(text, "usage") == NULL && strstr(text, "[DONE]") != NULL);
    free(text);
    stop(&f);
}

TEST(a_stop_string_says_so)
{
    struct fixture f;
    start(&f, 0);
    json_t *json = ask(&f, "POST", "/v1/completions", "{\"prompt\":\"a\",\"stop\":[\"END\"]}", 200);
    CHECK(says(choice_of(json, 0), "finish_reason", "stop"));
    CHECK(says(choice_of(json, 0), "stop_reason", "END"));
    json_decref(json);
    stop(&f);
}

TEST(only_the_served_names_are_answered)
{
    static const char *const names[] = {"one", "two"};
    struct fixture f;
    start_with(&f, (server_params){.served_model_names = names, .num_served_model_names = 2});
    static const struct {
        const char *path, *body; /* with a %s behind its last field */
    } asks[] = {
        {"/v1/completions", "{\"prompt\":\"a\"%s}"},
        {"/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]%s}"},
        {"/generate", "{\"text\":\"a\"%s}"},
    };
    for (size_t i = 0; i < 3; i++) {
        char body[200];
        for (int k = 0; k < 3; k++) {
            static const char *const fields[] = {"", ",\"model\":\"one\"", ",\"model\":\"two\""};
            snprintf(body, sizeof body, asks[i].body, fields[k]);
            json_t *json = ask(&f, "POST", asks[i].path, body, 200);
            if (i < 2) CHECK(says(json, "model", names[k == 2])); /* by the name it was asked */
            json_decref(json);
        }
        snprintf(body, sizeof body, asks[i].body, ",\"model\":\"gpt-4\"");
        json_t *json = ask(&f, "POST", asks[i].path, body, 404);
        json_t *error = json_object_get(json, "error");
        CHECK(says(error, "code", "model_not_found") && says(error, "param", "model"));
        CHECK(says(error, "type", "invalid_request_error"));
        CHECK(strstr(error_message(json), "'gpt-4'") && strstr(error_message(json), "'one'"));
        json_decref(json);
    }
    json_t *json = ask(&f, "GET", "/v1/models", "", 200);
    json_t *list = json_object_get(json, "data");
    CHECK(json_array_size(list) == 2 && says(json_array_get(list, 1), "id", "two"));
    json_decref(json);
    json_decref(ask(&f, "GET", "/v1/models/two", "", 200));
    json_decref(ask(&f, "GET", "/v1/models/three", "", 404));

    /* A body that a worker parses, and one in a stream. */
    char *large = malloc(60000);
    if (!large) abort();
    snprintf(large, 60000, "{\"model\":\"x\",\"stream\":true,\"prompt\":\"%50000d\"}", 1);
    json_decref(ask(&f, "POST", "/v1/completions", large, 404));
    free(large);
    stop(&f);
}

TEST(any_name_is_served_where_a_star_is_among_them)
{
    static const char *const names[] = {"*", "one"};
    struct fixture f;
    start_with(&f, (server_params){.served_model_names = names, .num_served_model_names = 2});
    json_t *json =
        ask(&f, "POST", "/v1/completions", "{\"prompt\":\"a\",\"model\":\"small-\u00fc\"}", 200);
    CHECK(says(json, "model", "small-\xc3\xbc")); /* as it was asked, though its JSON is gone */
    json_decref(json);
    json = ask(&f, "POST", "/v1/completions", "{\"prompt\":\"a\"}", 200);
    CHECK(says(json, "model", "one"));
    json_decref(json);
    json = ask(&f, "GET", "/v1/models", "", 200);
    CHECK(json_array_size(json_object_get(json, "data")) == 1);
    json_decref(json);
    stop(&f);
}

TEST(a_prompt_that_does_not_fit_has_a_code_of_its_own)
{
    struct fixture f;
    start(&f, 0);
    json_t *json = ask(&f, "POST", "/v1/completions", "{\"prompt\":\"error\"}", 400);
    json_t *error = json_object_get(json, "error");
    CHECK(says(error, "code", "context_length_exceeded"));
    CHECK(says(error, "type", "invalid_request_error") && says(error, "param", "prompt"));
    json_decref(json);
    stop(&f);
}

/* ---- /tokenize ---- */

TEST(texts_and_conversations_are_told_in_ids)
{
    struct fixture f;
    start(&f, 0);
    json_t *json = ask(&f, "POST", "/tokenize", "{\"prompt\":\"AB\"}", 200);
    json_t *tokens = json_object_get(json, "tokens");
    CHECK(json_array_size(tokens) == 2 && json_integer_value(json_array_get(tokens, 1)) == 'B');
    CHECK(number(json, "count") == 2 && number(json, "max_model_len") == 4096);
    json_decref(json);
    json = ask(&f, "POST", "/tokenize", "{\"prompt\":[\"AB\",\"C\"]}", 200);
    tokens = json_object_get(json, "tokens");
    CHECK(json_array_size(tokens) == 2 && json_array_size(json_array_get(tokens, 1)) == 1);
    CHECK(json_integer_value(json_array_get(json_object_get(json, "count"), 0)) == 2);
    json_decref(json);
    json =
        ask(&f, "POST", "/tokenize", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", 200);
    CHECK(number(json, "count") == 20);
    json_decref(json);
    static const char *const refused[] = {
        "{}", "{\"prompt\":[1]}", "{\"prompt\":\"a\",\"messages\":[]}", "{\"prompt\":\"invalid\"}",
        "{\"prompt\":\"a\",\"model\":\"other\"}"};
    for (size_t i = 0; i < RAD_COUNT(refused); i++) {
        json = ask(&f, "POST", "/tokenize", refused[i], i < 4 ? 400 : 404);
        CHECK(error_message(json)[0]);
        json_decref(json);
    }
    CHECK(f.engine->stats.requests.num_requests == 0);
    stop(&f);
}

TEST(a_query_with_unknown_words_flushes_nothing)
{
    struct fixture f;
    start(&f, 0);
    json_t *json = ask(&f, "POST", "/flush_cache?tier=storage", "", 400);
    CHECK(strstr(error_message(json), "'tier' is not known"));
    json_decref(json);
    json_decref(ask(&f, "POST", "/flush_cache?timeout=0", "", 200));
    static const char *const no_time[] = {"abc", "1s", "-1", "nan", ""};
    for (size_t i = 0; i < RAD_COUNT(no_time); i++) {
        char path[64];
        snprintf(path, sizeof path, "/flush_cache?timeout=%s", no_time[i]);
        json_decref(ask(&f, "POST", path, "", 400));
    }
    json_decref(ask(&f, "GET", "/v1/models/fake%20%22model%22", "", 200));
    json_decref(ask(&f, "GET", "/v1/models/fake%20%22model%22%00x", "", 404));
    json_decref(ask(&f, "PUT", "/hicache/storage-backend",
                    "{\"hicache_storage_backend\":\"file:x\",\"hicache_write_policy\":\"x\"}",
                    400));
    stop(&f);
}

/* ---- chat ---- */

TEST(chat_takes_parts_and_streams_the_role_first)
{
    struct fixture f;
    int status;
    start(&f, 0);
    json_t *json = ask(&f, "POST", "/v1/chat/completions",
                       "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
                       "\"text\":\"ab\"},{\"type\":\"text\",\"text\":\"cd\"}]}],"
                       "\"max_completion_tokens\":2}",
                       200);
    CHECK(strcmp(f.engine->last_words, "user:abcd") == 0);
    json_t *message = json_object_get(choice_of(json, 0), "message");
    CHECK(says(message, "content", "t0 t1 "));
    CHECK(says(message, "role", "assistant"));
    CHECK(cached_of(json) == FAKE_CACHED);
    json_decref(json);

    char *text = ask_raw(&f, "POST", "/v1/chat/completions",
                         "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true}",
                         &status);
    json = event_at(text, 0);
    CHECK(says(json_object_get(choice_of(json, 0), "delta"), "role", "assistant"));
    CHECK(says(json, "object", "chat.completion.chunk"));
    json_decref(json);
    char all[1024] = "";
    for (int i = 0; i < count_events(text) - 1; i++) {
        json = event_at(text, i);
        const char *piece = json_string_value(
            json_object_get(json_object_get(choice_of(json, 0), "delta"), "content"));
        if (piece) strcat(all, piece);
        json_decref(json);
    }
    CHECK(strcmp(all + strlen(all) - 8, "t28 t29 ") == 0 && strncmp(all, "t0 t1 ", 6) == 0);
    free(text);
    stop(&f);
}

/* Choices lie prompt by prompt; a prompt counts once, however many answers it gets. */
TEST(n_gives_choices_with_their_index_in_every_dialect)
{
    struct fixture f;
    int status;
    start(&f, 0);
    json_t *json = ask(&f, "POST", "/v1/completions",
                       "{\"prompt\":[\"a\",\"bcd\"],\"n\":3,\"max_tokens\":2}", 200);
    CHECK(json_array_size(json_object_get(json, "choices")) == 6);
    for (int i = 0; i < 6; i++)
        CHECK(number(choice_of(json, i), "index") == i);
    json_t *usage = json_object_get(json, "usage");
    CHECK(number(usage, "prompt_tokens") == 1 + 3 && number(usage, "completion_tokens") == 12);
    CHECK(cached_of(json) == 2 * FAKE_CACHED);
    json_decref(json);

    const char *chat = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"n\":2,"
                       "\"max_tokens\":3%s}";
    char body[200];
    snprintf(body, sizeof body, chat, "");
    json = ask(&f, "POST", "/v1/chat/completions", body, 200);
    CHECK(json_array_size(json_object_get(json, "choices")) == 2);
    json_t *second = json_object_get(choice_of(json, 1), "message");
    CHECK(number(choice_of(json, 1), "index") == 1);
    CHECK(says(second, "content", "t0 t1 t2 "));
    CHECK(number(json_object_get(json, "usage"), "prompt_tokens") == 20);
    json_decref(json);

    snprintf(body, sizeof body, chat, ",\"stream\":true");
    char *text = ask_raw(&f, "POST", "/v1/chat/completions", body, &status);
    int roles[2] = {0}, ends[2] = {0};
    for (int i = 0; i < count_events(text) - 1; i++) {
        json = event_at(text, i);
        int index = (int)number(choice_of(json, 0), "index");
        CHECK(index == 0 || index == 1);
        roles[index] += json_object_get(json_object_get(choice_of(json, 0), "delta"), "role") != 0;
        ends[index] += json_is_string(json_object_get(choice_of(json, 0), "finish_reason"));
        json_decref(json);
    }
    CHECK(roles[0] == 1 && roles[1] == 1 && ends[0] == 1 && ends[1] == 1);
    free(text);

    json = ask(&f, "POST", "/generate",
               "{\"text\":\"a\",\"sampling_params\":{\"n\":2,\"max_new_tokens\":1}}", 200);
    CHECK(json_array_size(json) == 2 && number(json_array_get(json, 1), "index") == 1);
    json_decref(json);

    /* One of them fails: the call does, and names the prompt, not the choice. */
    json = ask(&f, "POST", "/v1/completions", "{\"prompt\":[\"a\",\"error\"],\"n\":2}", 400);
    CHECKF(strstr(error_message(json), "prompt 1: ") != NULL, "%s", error_message(json));
    json_decref(json);
    json = ask(&f, "POST", "/v1/completions", "{\"prompt\":\"error\",\"n\":2}", 400);
    CHECKF(strstr(error_message(json), "prompt 0") == NULL, "%s", error_message(json));
    json_decref(json);
    stop(&f);
}

/* What current OpenAI clients call the system message. */
TEST(a_developer_message_is_a_system_message)
{
    struct fixture f;
    start(&f, 0);
    json_decref(ask(&f, "POST", "/v1/chat/completions",
                    "{\"messages\":[{\"role\":\"developer\",\"content\":\"be brief\"},"
                    "{\"role\":\"user\",\"content\":\"hi\"}]}",
                    200));
    CHECKF(strcmp(f.engine->last_words, "system:be brief") == 0, "%s", f.engine->last_words);
    stop(&f);
}

/* ---- generate ---- */

TEST(generate_says_where_the_cached_tokens_came_from_and_why_there_were_no_more)
{
    struct fixture f;
    const char *ask_for = "{\"input_ids\":[5],\"sampling_params\":{\"max_new_tokens\":1}}";
    fake_why = (req_why){0};
    start(&f, 0);
    json_t *json = ask(&f, "POST", "/generate", ask_for, 200);
    json_t *meta = json_object_get(json, "meta_info"), *why, *tier;
    CHECK(!json_object_get(meta, "cache_explanation")); /* nothing is known */
    json_decref(json);

    fake_why = (req_why){.known = true, .device = {.why = RAD_END_NEVER_SEEN}};
    json = ask(&f, "POST", "/generate", ask_for, 200);
    why = json_object_get(json_object_get(json, "meta_info"), "cache_explanation");
    tier = json_object_get(why, "device");
    CHECK(json_object_size(why) == 1 && number(tier, "tokens") == FAKE_CACHED);
    CHECK(json_object_size(tier) == 2 && says(tier, "end", "never_seen"));
    json_decref(json);

    fake_why = (req_why){.known = true,
                         .has_tiers = true,
                         .device = {.why = RAD_END_EVICTED,
                                    .evicted_tokens = 64,
                                    .evicted_ns_ago = 1500000000,
                                    .policy = "lru",
                                    .cause = RAD_EVICTION_ROOM},
                         .host = {.why = RAD_END_PAGE_ROUNDING},
                         .host_tokens = 9,
                         .load = RAD_LOAD_BELOW_THRESHOLD,
                         .prefetch = RAD_PREFETCH_REVOKED,
                         .asked_tokens = 256,
                         .present_tokens = 16};
    json = ask(&f, "POST", "/generate", ask_for, 200);
    why = json_object_get(json_object_get(json, "meta_info"), "cache_explanation");
    tier = json_object_get(why, "device");
    CHECK(number(tier, "tokens") == FAKE_CACHED - 2 && says(tier, "end", "evicted"));
    CHECK(number(tier, "evicted_tokens") == 64 && says(tier, "policy", "lru"));
    CHECK(json_real_value(json_object_get(tier, "evicted_s_ago")) == 1.5);
    CHECK(says(tier, "cause", "room"));
    tier = json_object_get(why, "host");
    CHECK(number(tier, "tokens") == 1 && says(tier, "end", "page_rounding"));
    CHECK(number(tier, "found") == 9 && says(tier, "load", "below_threshold"));
    tier = json_object_get(why, "storage");
    CHECK(number(tier, "tokens") == 1 && says(tier, "end", "revoked"));
    CHECK(number(tier, "asked") == 256 && number(tier, "present") == 16);
    json_decref(json);

    fake_why.load_failed = true;
    fake_why.device.why = 99; /* a reason that is newer than this server's words */
    json = ask(&f, "POST", "/generate", ask_for, 200);
    why = json_object_get(json_object_get(json, "meta_info"), "cache_explanation");
    CHECK(says(json_object_get(why, "host"), "load", "failed"));
    CHECK(says(json_object_get(why, "device"), "end", "unknown"));
    json_decref(json);
    fake_why = (req_why){0};
    stop(&f);
}

/* The request's own drafts, under SGLang's names, by source where the cache is explained; and of
 * what it foretold how much the answer has, which is told of no other request. */
TEST(answers_say_how_much_of_them_was_guessed)
{
    struct fixture f;
    fake_why = (req_why){.known = true};
    start(&f, 0);
    json_t *json = ask(&f, "POST", "/generate", "{\"text\":\"a\"}", 200);
    CHECK(!json_object_get(json_object_get(json, "meta_info"), "spec_verify_ct"));
    json_decref(json);

    fake_drafts = (draft_counts){.steps = 8,
                                 .proposed = {[DRAFT_TREE] = 6, [DRAFT_PREDICTION] = 10},
                                 .accepted = {[DRAFT_TREE] = 3, [DRAFT_PREDICTION] = 9}};
    json = ask(&f, "POST", "/generate",
               "{\"text\":\"a\",\"prediction\":{\"type\":\"content\",\"content\":\"abcde\"}}", 200);
    json_t *meta = json_object_get(json, "meta_info");
    CHECK(number(meta, "spec_verify_ct") == 8 && number(meta, "spec_draft_token_num") == 16);
    CHECK(number(meta, "spec_accept_token_num") == 12);
    CHECK(json_real_value(json_object_get(meta, "spec_accept_rate")) == 0.75);
    CHECK(json_real_value(json_object_get(meta, "spec_accept_length")) == 2.5);
    CHECK(number(meta, "accepted_prediction_tokens") == 3);
    CHECK(number(meta, "rejected_prediction_tokens") == 2);
    json_t *told = json_object_get(json_object_get(meta, "cache_explanation"), "drafts");
    CHECK(json_object_size(told) == 3 && number(told, "steps") == 8);
    CHECK(number(json_object_get(told, "tree"), "proposed") == 6);
    CHECK(number(json_object_get(told, "prediction"), "accepted") == 9);
    json_decref(json);

    json = ask(&f, "POST", "/v1/chat/completions",
               "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"n\":2,\"prediction\":"
               "{\"type\":\"content\",\"content\":\"abcde\"}}",
               200);
    told = json_object_get(json_object_get(json, "usage"), "completion_tokens_details");
    CHECK(json_object_size(told) == 2 && number(told, "accepted_prediction_tokens") == 6);
    CHECK(number(told, "rejected_prediction_tokens") == 4);
    json_decref(json);

    pthread_mutex_lock(&f.engine->lock);
    f.engine->stats.sched.drafts =
        (draft_stats){.req_steps = 2, .proposed[DRAFT_NGRAM] = 4, .accepted[DRAFT_NGRAM] = 3};
    pthread_mutex_unlock(&f.engine->lock);
    json = ask(&f, "GET", "/get_server_info", "", 200);
    CHECK(says(json, "speculative_algorithm", "tree"));
    told = json_array_get(json_object_get(json, "internal_states"), 0);
    CHECK(json_real_value(json_object_get(told, "avg_spec_accept_length")) == 2.5);
    json_decref(json);
    fake_why = (req_why){0};
    fake_drafts = (draft_counts){0};
    stop(&f);
}

TEST(generate_answers_in_sglangs_form)
{
    struct fixture f;
    int status;
    start(&f, 0);
    json_t *json = ask(&f, "POST", "/generate",
                       "{\"input_ids\":[5,6,7],\"sampling_params\":{\"max_new_tokens\":2}}", 200);
    json_t *meta = json_object_get(json, "meta_info");
    CHECK(says(json, "text", "t0 t1 "));
    CHECK(json_array_size(json_object_get(json, "output_ids")) == 2);
    CHECK(number(meta, "prompt_tokens") == 3 && number(meta, "cached_tokens") == FAKE_CACHED);
    CHECK(says(json_object_get(meta, "finish_reason"), "type", "length"));
    CHECK(number(json_object_get(meta, "finish_reason"), "length") == 2);
    CHECK(json_real_value(json_object_get(meta, "e2e_latency")) == 0.5);
    json_decref(json);

    json = ask(&f, "POST", "/generate",
               "{\"text\":[\"a\",\"b\"],\"sampling_params\":[{\"max_new_tokens\":1},"
               "{\"max_new_tokens\":3,\"stop_token_ids\":[9]}]}",
               200);
    CHECK(json_array_size(json) == 2);
    json_t *reason =
        json_object_get(json_object_get(json_array_get(json, 1), "meta_info"), "finish_reason");
    CHECK(number(reason, "matched") == 9);
    json_decref(json);

    char *text = ask_raw(&f, "POST", "/generate", "{\"text\":\"a\",\"stream\":true}", &status);
    int n = count_events(text);
    size_t before = 0;
    for (int i = 0; i < n - 1; i++) {
        json = event_at(text, i);
        size_t ids = json_array_size(json_object_get(json, "output_ids"));
        CHECK(ids > before || i == n - 2);
        before = ids;
        if (i == n - 2) CHECK(ids == 128 && strncmp(text_of(json, "text"), "t0 t1", 5) == 0);
        json_decref(json);
    }
    CHECK(strstr(text, "data: [DONE]\n\n") != NULL);
    free(text);
    stop(&f);
}

/* ---- errors ---- */

TEST(bad_requests_get_words)
{
    static const struct {
        const char *path, *body;
        int status;
        const char *words;
    } cases[] = {
        {"/v1/completions", "", 400, "empty"},
        {"/v1/completions", "{", 400, "line 1"},
        {"/v1/completions", "[]", 400, "object"},
        {"/v1/completions", "{\"prompt\":\"\xff\"}", 400, "byte"},
        {"/v1/completions", "{\"prompt\":\"a\",\"prompt\":\"b\"}", 400, "duplicate"},
        {"/v1/completions", "{\"prompt\":\"a\"} x", 400, "end of file"},
        {"/v1/completions", "{}", 400, "prompt"},
        {"/v1/completions", "{\"prompt\":[]}", 400, "empty"},
        {"/v1/completions", "{\"prompt\":[[]]}", 400, "empty"},
        {"/v1/completions", "{\"prompt\":[1,\"a\"]}", 400, "token 1"},
        {"/v1/completions", "{\"prompt\":[-1]}", 400, "-1"},
        {"/v1/completions", "{\"prompt\":[99999999999]}", 400, "token 0"},
        {"/v1/completions", "{\"prompt\":{}}", 400, "prompt"},
        {"/v1/completions", "{\"prompt\":\"a\",\"n\":-1}", 400, "between 1"},
        {"/v1/completions", "{\"prompt\":\"a\",\"n\":129}", 400, "between 1"},
        {"/v1/completions", "{\"prompt\":\"a\",\"n\":3,\"best_of\":2}", 400, "best_of"},
        {"/v1/completions", "{\"prompt\":\"a\",\"echo\":1}", 400, "echo"},
        {"/v1/completions", "{\"prompt\":\"a\",\"logprobs\":21}", 400, "logprobs"},
        {"/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":-2}", 400, "max_tokens"},
        {"/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1.5}", 400, "integer"},
        {"/v1/completions", "{\"prompt\":\"a\",\"temperature\":\"hot\"}", 400, "temperature"},
        {"/v1/completions", "{\"prompt\":\"a\",\"stop\":[\"\"]}", 400, "stop"},
        {"/v1/completions", "{\"prompt\":\"a\",\"cache_salt\":\"\"}", 400, "cache_salt"},
        {"/v1/completions", "{\"prompt\":\"a\",\"stream\":1}", 400, "stream"},
        {"/v1/completions", "{\"prompt\":\"invalid\"}", 400, "top_p"},
        {"/v1/completions", "{\"prompt\":\"error\"}", 400, "too long"},
        {"/v1/completions", "{\"prompt\":\"error\",\"stream\":true}", 400, "too long"},
        {"/v1/completions", "{\"prompt\":[\"a\",\"error\"]}", 400, "prompt 1: "},
        {"/v1/completions", "{\"prompt\":\"full\"}", 429, "full"},
        {"/v1/completions", "{\"prompt\":[\"silent\",\"full\"]}", 429, "prompt 1"},
        {"/v1/chat/completions", "{\"messages\":[]}", 400, "messages"},
        {"/v1/chat/completions", "{\"messages\":[{\"role\":\"user\"}]}", 400, "content"},
        {"/v1/chat/completions", "{\"messages\":[7]}", 400, "messages[0]"},
        {"/generate", "{\"text\":\"a\",\"input_ids\":[1]}", 400, "either"},
        {"/generate", "{\"sampling_params\":{}}", 400, "either"},
        {"/generate", "{\"text\":\"a\",\"sampling_params\":[]}", 400, "0 entries"},
        {"/generate", "{\"text\":\"a\",\"return_logprob\":2}", 400, "return_logprob"},
        {"/nowhere", "{}", 404, "path"},
        {"/health", "{}", 405, "GET"},
    };
    struct fixture f;
    start(&f, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *json = ask(&f, "POST", cases[i].path, cases[i].body, cases[i].status);
        CHECKF(strstr(error_message(json), cases[i].words) != NULL, "%s: %s", cases[i].body,
               error_message(json));
        CHECK(json_is_string(json_object_get(json_object_get(json, "error"), "type")));
        json_decref(json);
    }
    json_decref(ask(&f, "GET", "/v1/completions", "", 405));
    json_decref(ask(&f, "OPTIONS", "/health", "", 405));
    json_decref(ask(&f, "POST", "/v1/completions", "{\"prompt\":\"still here\"}", 200));
    stop(&f);
}

TEST(errors_name_the_parameter)
{
    static const struct {
        const char *path, *body, *param;
    } cases[] = {
        {"/v1/completions", "{\"prompt\":\"a\",\"temperature\":-1}", "temperature"},
        {"/v1/completions", "{\"prompt\":\"a\",\"top_p\":0}", "top_p"},
        {"/v1/completions", "{\"prompt\":\"error\"}", "prompt"},
        {"/v1/completions", "{\"prompt\":[\"a\",\"error\"]}", "prompt"},
        {"/v1/chat/completions",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"min_p\":2}", "min_p"},
        {"/generate", "{\"text\":\"error\"}", "text"},
        {"/generate", "{\"text\":\"a\",\"sampling_params\":{\"temperature\":-1}}", "temperature"},
    };
    struct fixture f;
    start(&f, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *json = ask(&f, "POST", cases[i].path, cases[i].body, 400);
        const char *param = text_of(json_object_get(json, "error"), "param");
        CHECKF(strcmp(param, cases[i].param) == 0, "%s: %s", cases[i].body, param);
        json_decref(json);
    }
    stop(&f);
}

TEST(depth_and_number_of_values_are_bounded)
{
    struct fixture f;
    int status;
    start(&f, 0);
    char deep[600];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    json_t *json = ask(&f, "POST", "/generate", deep, 400);
    CHECK(strstr(error_message(json), "nested") != NULL);
    json_decref(json);

    size_t len = 3 << 20; /* past the 1 MiB this server takes */
    char *big = malloc(len);
    CHECK(big != NULL);
    memset(big, ' ', len);
    int fd = dial(&f);
    send_request(fd, "POST", "/generate", big, len);
    free(read_reply(fd, &status));
    CHECKF(status == 413, "status %d", status);
    free(big);
    json_decref(ask(&f, "GET", "/health", "", 200));
    stop(&f);
}

TEST(an_error_after_the_first_token_ends_the_stream_in_words)
{
    struct fixture f;
    int status;
    start(&f, 0);
    char *text = ask_late(&f, &status);
    CHECKF(status == 200 && strstr(text, "data: {\"error\"") != NULL, "status %d: %s", status, text);
    free(text);
    stop(&f);
}

TEST(large_bodies_are_parsed_elsewhere_and_answered_alike)
{
    enum { WORDS = 100000 };
    struct fixture f;
    start(&f, 0);
    char *body = malloc(WORDS * 2 + 200), *at = body;
    CHECK(body != NULL);
    at += sprintf(at, "{\"max_tokens\":2,\"prompt\":[");
    for (int i = 0; i < WORDS; i++)
        at += sprintf(at, "%s%d", i ? "," : "", i % 10);
    strcpy(at, "]}");
    json_t *json = ask(&f, "POST", "/v1/completions", body, 200);
    CHECK(number(json_object_get(json, "usage"), "prompt_tokens") == WORDS);
    json_decref(json);
    strcpy(at, "],\"stream\":true}");
    int status;
    char *text = ask_raw(&f, "POST", "/v1/completions", body, &status);
    CHECK(status == 200 && strstr(text, "data: [DONE]\n\n") != NULL);
    free(text);
    strcpy(at, "}");
    json = ask(&f, "POST", "/v1/completions", body, 400);
    CHECK(strstr(error_message(json), "invalid JSON") != NULL);
    json_decref(json);
    for (int i = 0; i < 20; i++) { /* gone before, while or after it is parsed */
        int fd = dial(&f);
        send_request(fd, "POST", "/generate", body, strlen(body));
        usleep((useconds_t)(i * 200));
        close(fd);
    }
    json_decref(ask(&f, "GET", "/health", "", 200));
    free(body);
    stop(&f);
}

/* They used to be a sum of the clock and one constant, so that each told the next. */
TEST(ids_tell_nothing_about_each_other)
{
    enum { COUNT = 16 };
    uint64_t high[COUNT], low[COUNT];
    struct fixture f;
    start(&f, 0);
    for (int i = 0; i < COUNT; i++) {
        json_t *json =
            ask(&f, "POST", "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1}", 200);
        const char *id = text_of(json, "id");
        unsigned long long a = 0, b = 0;
        CHECKF(strlen(id) == 37 && sscanf(id, "cmpl-%16llx%16llx", &a, &b) == 2, "%s", id);
        high[i] = a, low[i] = b;
        json_decref(json);
        for (int j = 0; j < i; j++)
            CHECK(high[i] != high[j] && low[i] != low[j]);
        CHECKF(i < 2 || (high[i] - high[i - 1] != high[i - 1] - high[i - 2] &&
                         low[i] - low[i - 1] != low[i - 1] - low[i - 2]),
               "%s", id);
    }
    stop(&f);
}

/* ---- sessions ---- */

/* Opens one that is called `id`. */
static void open_session(const struct fixture *f, const char *id, const char *more)
{
    char body[200];
    snprintf(body, sizeof body, "{\"session_id\":\"%s\"%s}", id, more);
    int status;
    char *told = ask_raw(f, "POST", "/open_session", body, &status);
    CHECKF(status == 200 && told[0] == '"' && !strncmp(told + 1, id, strlen(id)), "%d %s", status,
           told);
    free(told);
}

/* A turn with those ids and as many tokens of output; the whole answer. */
static json_t *take_turn(const struct fixture *f, const char *rid, const char *params,
                         const char *ids, int out, int want)
{
    char body[400];
    snprintf(body, sizeof body,
             "{\"rid\":\"%s\",\"input_ids\":[%s],\"session_params\":{%s},"
             "\"sampling_params\":{\"max_new_tokens\":%d}}",
             rid, ids, params, out);
    return ask(f, "POST", "/generate", body, want);
}

/* The prompt that the engine got is `want`, numbers with spaces. */
static void check_prompt(const struct fixture *f, const char *want)
{
    char got[400] = "";
    for (uint32_t i = 0; i < f->engine->last.num_ids; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", i ? " " : "",
                 f->engine->last_ids[i]);
    CHECKF(strcmp(got, want) == 0, "got %s, wanted %s\n", got, want);
}

static void check_step(json_t *answer, const char *step, json_int_t history, json_int_t left,
                       json_int_t own)
{
    json_t *meta = json_object_get(answer, "meta_info");
    json_t *told = json_object_get(json_object_get(meta, "cache_explanation"), "session");
    CHECKF(says(told, "step", step) && number(told, "history_tokens") == history &&
               number(told, "left_tokens") == left && number(told, "new_tokens") == own,
           "%s\n", json_dumps(told, 0));
    json_decref(answer);
}

TEST(a_session_goes_on_from_the_ids_of_its_requests)
{
    struct fixture f;
    fake_why = (req_why){.known = true};
    start(&f, 0);
    open_session(&f, "s", ",\"capacity_of_str_len\":1000");
    check_step(take_turn(&f, "a", "\"id\":\"s\"", "1,2,3", 2, 200), "begin", 0, 0, 3);
    CHECK(f.engine->last.session == 1);
    check_step(take_turn(&f, "b", "\"id\":\"s\",\"rid\":\"a\"", "4", 3, 200), "append", 5, 0, 1);
    check_prompt(&f, "1 2 3 100 101 4");
    check_step(take_turn(&f, "c", "\"id\":\"s\",\"rid\":\"b\"", "5,6", 1, 200), "append", 9, 0, 2);
    check_prompt(&f, "1 2 3 100 101 4 100 101 102 5 6");
    check_step(take_turn(&f, "d", "\"id\":\"s\",\"rid\":\"a\"", "7", 1, 200), "branch", 5, 0, 1);
    check_prompt(&f, "1 2 3 100 101 7");
    check_step(take_turn(&f, "e", "\"id\":\"s\",\"rid\":\"b\",\"offset\":7", "8", 1, 200), "offset",
               7, 2, 1);
    check_prompt(&f, "1 2 3 100 101 4 100 8");
    check_step(take_turn(&f, "f", "\"id\":\"s\",\"rid\":\"c\",\"offset\":-11", "9", 1, 200),
               "offset", 1, 11, 1);
    check_prompt(&f, "1 9");
    check_step(
        take_turn(&f, "g", "\"id\":\"s\",\"rid\":\"b\",\"drop_previous_output\":true", "9", 1, 200),
        "drop_previous_output", 6, 3, 1);
    check_prompt(&f, "1 2 3 100 101 4 9");

    /* b again: c, e and g are gone with it, d is not */
    check_step(take_turn(&f, "h", "\"id\":\"s\",\"rid\":\"b\",\"replace\":true", "10", 1, 200),
               "replace", 9, 0, 1);
    check_prompt(&f, "1 2 3 100 101 4 100 101 102 10");
    json_decref(take_turn(&f, "x", "\"id\":\"s\",\"rid\":\"c\"", "1", 1, 400));
    json_decref(take_turn(&f, "i", "\"id\":\"s\",\"rid\":\"d\"", "1", 1, 200));
    check_prompt(&f, "1 2 3 100 101 7 100 1");
    check_step(take_turn(&f, "j", "\"id\":\"s\",\"replace\":true", "1", 1, 200), "replace", 0, 0,
               1);
    json_decref(take_turn(&f, "x", "\"id\":\"s\",\"rid\":\"d\"", "1", 1, 400));

    /* by the id of a chat's answer; a stream too */
    json_t *json = ask(&f, "POST", "/v1/completions",
                       "{\"prompt\":[5],\"max_tokens\":2,\"session_params\":{\"id\":\"s\"}}", 200);
    char params[200];
    snprintf(params, sizeof params, "\"id\":\"s\",\"rid\":\"%s\"", text_of(json, "id"));
    json_decref(json);
    json_decref(take_turn(&f, "k", params, "6", 1, 200));
    check_prompt(&f, "5 100 101 6");
    stop(&f);
    fake_why = (req_why){0};
}

TEST(a_turn_that_a_session_cannot_take_is_refused_in_words)
{
    static const struct {
        const char *params, *words;
    } bad[] = {{"\"rid\":\"a\"", "has no 'id'"},
               {"\"id\":\"t\"", "'t' is not open"},
               {"\"id\":\"s\",\"rid\":\"z\"", "no request 'z'"},
               {"\"id\":\"s\",\"offset\":\"1\"", "offset"},
               {"\"id\":\"s\",\"ofset\":1", "'ofset' is not known in session_params"}};
    struct fixture f;
    start(&f, 0);
    open_session(&f, "s", "");
    json_decref(take_turn(&f, "a", "\"id\":\"s\"", "1", 1, 200));
    for (size_t i = 0; i < RAD_COUNT(bad); i++) {
        json_t *json = take_turn(&f, "b", bad[i].params, "1", 1, 400);
        CHECKF(strstr(error_message(json), bad[i].words), "%s\n", error_message(json));
        json_decref(json);
    }
    json_t *json = take_turn(&f, "a", "\"id\":\"s\"", "1", 1, 400);
    CHECK(strstr(error_message(json), "a request 'a' already"));
    json_decref(json);
    json = ask(&f, "POST", "/generate",
               "{\"input_ids\":[[1],[2]],\"session_params\":{\"id\":\"s\"}}", 400);
    CHECK(strstr(error_message(json), "one prompt with one answer"));
    json_decref(json);
    /* one that failed is not there to be gone on from */
    CHECK(FAKE_ERROR_ID == 991);
    json_decref(take_turn(&f, "e", "\"id\":\"s\"", "991", 1, 400));
    json_decref(take_turn(&f, "b", "\"id\":\"s\",\"rid\":\"e\"", "1", 1, 400));

    json_decref(ask(&f, "POST", "/open_session", "{\"session_id\":\"s\"}", 400));
    json = ask(&f, "POST", "/open_session", "{\"streaming\":true}", 400);
    CHECK(strstr(error_message(json), "--enable-streaming-session"));
    json_decref(json);
    json_decref(ask(&f, "POST", "/open_session", "{\"timeout\":0}", 400));
    json_decref(ask(&f, "POST", "/open_session", "{\"session_id\":\"\"}", 400));
    open_session(&f, "t", "");
    open_session(&f, "u", "");
    json = ask(&f, "POST", "/open_session", "{}", 429);
    CHECK(strstr(error_message(json), "--max-sessions"));
    json_decref(json);
    json_decref(ask(&f, "POST", "/close_session", "{\"session_id\":\"t\"}", 200));
    json_decref(ask(&f, "POST", "/close_session", "{\"session_id\":\"t\"}", 404));
    json_decref(ask(&f, "POST", "/close_session", "{}", 400));
    open_session(&f, "t", "");
    stop(&f);
}

static uint64_t newest_request(const struct fixture *f)
{
    pthread_mutex_lock(&f->engine->lock);
    uint64_t id = f->engine->next_id;
    pthread_mutex_unlock(&f->engine->lock);
    return id;
}

/* Sends a turn that says nothing until it is aborted; the connection. */
static int begin_silent_turn(const struct fixture *f, const char *rid, const char *params)
{
    char body[300];
    int fd = dial(f);
    uint64_t before = newest_request(f);
    snprintf(body, sizeof body, "{\"rid\":\"%s\",\"input_ids\":[1,%d],\"session_params\":{%s}}",
             rid, FAKE_SILENT_ID, params);
    send_request(fd, "POST", "/generate", body, strlen(body));
    while (newest_request(f) == before)
        usleep(1000);
    return fd;
}

static uint32_t engine_sessions(const struct fixture *f)
{
    pthread_mutex_lock(&f->engine->lock);
    uint32_t open = f->engine->sessions_open;
    pthread_mutex_unlock(&f->engine->lock);
    return open;
}

TEST(a_turn_that_runs_is_waited_for_replaced_or_outlives_its_session)
{
    struct fixture f;
    int status;
    start(&f, 0);
    open_session(&f, "s", "");
    int fd = begin_silent_turn(&f, "a", "\"id\":\"s\"");
    json_t *json = take_turn(&f, "b", "\"id\":\"s\",\"rid\":\"a\"", "5", 1, 400);
    CHECK(strstr(error_message(json), "has not finished"));
    json_decref(json);
    json_decref(take_turn(&f, "b", "\"id\":\"s\",\"rid\":\"a\",\"replace\":true", "5", 1, 200));
    check_prompt(&f, "1 990 5");
    free(read_reply(fd, &status)); /* it was aborted, or would never end */
    CHECK(status == 200);

    fd = begin_silent_turn(&f, "c", "\"id\":\"s\",\"rid\":\"b\"");
    json_decref(ask(&f, "POST", "/close_session", "{\"session_id\":\"s\"}", 200));
    json_decref(take_turn(&f, "d", "\"id\":\"s\"", "5", 1, 400));
    CHECK(engine_sessions(&f) == 1); /* until its turn has ended */
    json_decref(ask(&f, "POST", "/abort_request", "{\"rid\":\"c\"}", 200));
    free(read_reply(fd, &status));
    while (engine_sessions(&f))
        usleep(1000);
    stop(&f);
}

TEST(a_streaming_session_only_goes_on)
{
    static const char *const bad[] = {"replace\":true", "offset\":2",
                                      "drop_previous_output\":true"};
    struct fixture f;
    int status;
    fake_info.streaming_sessions = true;
    start(&f, 0);
    open_session(&f, "s", ",\"streaming\":true");
    json_decref(take_turn(&f, "a", "\"id\":\"s\"", "1", 2, 200));
    CHECK(f.engine->last.session != 0);
    for (size_t i = 0; i < RAD_COUNT(bad); i++) {
        char params[100];
        snprintf(params, sizeof params, "\"id\":\"s\",\"rid\":\"a\",\"%s", bad[i]);
        json_t *json = take_turn(&f, "b", params, "2", 1, 400);
        CHECKF(strstr(error_message(json), "only goes on"), "%s\n", error_message(json));
        json_decref(json);
    }
    json_decref(take_turn(&f, "b", "\"id\":\"s\"", "2", 1, 200)); /* from the last, named or not */
    check_prompt(&f, "1 100 101 2");
    json_decref(take_turn(&f, "c", "\"id\":\"s\",\"rid\":\"a\"", "2", 1, 400));
    json_decref(take_turn(&f, "c", "\"id\":\"s\",\"rid\":\"b\"", "991", 1, 400));
    int fd = begin_silent_turn(&f, "d", "\"id\":\"s\"");
    json_t *json = take_turn(&f, "e", "\"id\":\"s\"", "2", 1, 400);
    CHECK(strstr(error_message(json), "already has an active request"));
    json_decref(json);
    json_decref(ask(&f, "POST", "/abort_request", "{\"rid\":\"d\"}", 200));
    free(read_reply(fd, &status));
    json_decref(take_turn(&f, "f", "\"id\":\"s\"", "3", 1, 200)); /* as if c and d had never been */
    check_prompt(&f, "1 100 101 2 100 3");

    open_session(&f, "t", ""); /* an ordinary one beside it has none of the engine's */
    json_decref(take_turn(&f, "a", "\"id\":\"t\"", "1", 1, 200));
    CHECK(f.engine->last.session == 0 && engine_sessions(&f) == 1);
    stop(&f);
    fake_info.streaming_sessions = false;
}

TEST(sessions_end_when_they_are_idle_or_others_need_the_room)
{
    struct fixture f;
    start_with(&f, (server_params){.session_history_bytes = 6000});
    open_session(&f, "brief", ",\"timeout\":0.001");
    for (int status = 200; status == 200; usleep(1000))
        free(ask_raw(&f, "POST", "/generate",
                     "{\"input_ids\":[1],\"session_params\":{\"id\":\"brief\"},"
                     "\"sampling_params\":{\"max_new_tokens\":1}}",
                     &status));
    while (engine_sessions(&f))
        usleep(1000);

    open_session(&f, "old", "");
    open_session(&f, "new", "");
    json_decref(take_turn(&f, "a", "\"id\":\"old\"", "1", 800, 200));
    json_decref(take_turn(&f, "a", "\"id\":\"new\"", "1", 800, 200));
    json_decref(take_turn(&f, "b", "\"id\":\"old\"", "1", 1, 400)); /* it made room */
    json_decref(take_turn(&f, "b", "\"id\":\"new\",\"rid\":\"a\"", "2", 800, 200));
    json_decref(take_turn(&f, "c", "\"id\":\"new\",\"rid\":\"b\"", "3", 1, 400)); /* did not fit */
    json_decref(take_turn(&f, "c", "\"id\":\"new\",\"rid\":\"a\"", "3", 1, 200));
    CHECK(f.engine->last.num_ids == 802);
    stop(&f);
}

/* The list and one of it, for clients of Anthropic's, and their errors; with the name of the
 * request where they look for it. */
TEST(models_are_told_in_anthropics_form_to_its_clients)
{
    static const char head[] = "GET /v1/models%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                               "anthropic-version: 2023-06-01\r\nX-Request-Id: mine\r\n\r\n";
    static const struct {
        const char *path, *status, *want;
    } cases[] = {
        {"", " 200 ",
         "{\"data\":[{\"type\":\"model\",\"id\":\"fake \\\"model\\\"\",\"display_name\":"
         "\"fake \\\"model\\\"\",\"created_at\":\"2023-11-14T22:13:20.000000000Z\"}],"
         "\"has_more\":false,\"first_id\":\"fake \\\"model\\\"\",\"last_id\":"},
        {"/fake%20%22model%22", " 200 ", "{\"type\":\"model\",\"id\":"},
        {"/other", " 404 ", "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\""},
    };
    struct fixture f;
    char asked[300];
    start(&f, 1000);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(asked, sizeof asked, head, cases[i].path);
        const char *reply = exchange(&f, asked);
        CHECKF(strstr(reply, cases[i].status) && strstr(reply, cases[i].want) &&
                   strstr(reply, "\r\nrequest-id: mine\r\n"),
               "%s: %s\n", cases[i].path, reply);
    }
    json_t *list = ask(&f, "GET", "/v1/models", "", 200); /* others' are OpenAI's */
    CHECK(says(list, "object", "list"));
    json_decref(list);
    stop(&f);
}

/* What a session should know of its requests, obviously: each with its whole history. */
enum { NAIVE_MOST = 400, NAIVE_TOKENS = 400 };
typedef struct naive_request {
    char rid[16];
    rad_token ids[NAIVE_TOKENS];
    uint32_t len, input_end;
    int parent; /* -1: none */
    bool there, has_children;
    session_turn *turn; /* while it runs */
} naive_request;

typedef struct naive_session {
    naive_request all[NAIVE_MOST];
    int count;
} naive_session;

static bool naive_descends(const naive_session *n, int i, int from)
{
    while (i >= 0 && i != from)
        i = n->all[i].parent;
    return i == from;
}

/* The next request: whether the session takes it, and its history in out[]. */
static bool naive_begin(naive_session *n, const api_session *ask, int parent, rad_token *out,
                        uint32_t *len)
{
    naive_request *p = parent < 0 ? NULL : &n->all[parent];
    if (p && (!p->there || (p->turn && !ask->replace))) return false;
    for (int i = 0; ask->replace && i < n->count; i++)
        if (i != parent && (parent < 0 || naive_descends(n, i, parent))) n->all[i].there = false;
    int64_t end = !p ? 0 : ask->drop_previous_output ? p->input_end : p->len;
    if (ask->offset > 0) end = RAD_MIN(end, ask->offset);
    if (ask->offset < 0) end = RAD_MAX(end + ask->offset, 0);
    if (end) memcpy(out, p->ids, (size_t)end * sizeof *out);
    *len = (uint32_t)end;
    if (p) p->has_children = true;
    return true;
}

/* It says up to six ids more, in two pieces, and may end. */
static void naive_go_on(naive_request *r, uint64_t *rng, bool ends)
{
    static const engine_finish finishes[] = {ENGINE_FINISH_STOP, ENGINE_FINISH_LENGTH,
                                             ENGINE_FINISH_ABORT, ENGINE_FINISH_ERROR};
    for (int piece = 0; piece < 2; piece++) {
        for (uint64_t i = test_random(rng) % 4; i; i--)
            r->ids[r->len++] = (rad_token)(test_random(rng) % 1000);
        session_turn_heard(r->turn, r->ids + r->input_end, r->len - r->input_end);
    }
    if (!ends) return;
    engine_finish finish = finishes[test_random(rng) % RAD_COUNT(finishes)];
    session_turn_end(r->turn, finish);
    session_turn_free(r->turn);
    r->turn = NULL;
    if (finish == ENGINE_FINISH_ERROR && !r->has_children) r->there = false;
}

static void naive_round(sessions *s, naive_session *n, uint64_t *rng)
{
    int parent = n->count && test_random(rng) % 4 ? (int)(test_random(rng) % (uint64_t)n->count)
                                                  : -1;
    naive_request *r = &n->all[n->count], *p = parent < 0 ? NULL : &n->all[parent];
    api_session ask = {.id = "s", .rid = p ? p->rid : NULL};
    ask.replace = test_random(rng) % 40 == 0;
    ask.drop_previous_output = test_random(rng) % 6 == 0;
    if (test_random(rng) % 3 == 0) ask.offset = (int64_t)(test_random(rng) % 60) - 30;
    if (p && p->len > NAIVE_TOKENS / 2) ask.offset = 7;
    snprintf(r->rid, sizeof r->rid, "r%d", n->count);
    token_buf history = {0};
    api_error err;
    r->turn = sessions_begin(s, NULL, &ask, r->rid, &history, &err);
    bool taken = naive_begin(n, &ask, parent, r->ids, &r->len);
    CHECKF(taken == (r->turn != NULL), "%d from %d: %s\n", n->count, parent,
           r->turn ? "taken" : err.message);
    if (taken) {
        CHECK(history.len == r->len && r->turn->history_tokens == r->len);
        CHECK(!r->len || memcmp(history.ids, r->ids, r->len * sizeof *r->ids) == 0);
        uint32_t own = 1 + (uint32_t)(test_random(rng) % 5), first = r->len;
        for (uint32_t i = 0; i < own; i++)
            r->ids[r->len++] = (rad_token)(test_random(rng) % 1000);
        CHECK(session_turn_input(r->turn, r->ids + first, own, &err));
        r->input_end = r->len;
        r->parent = parent;
        r->there = true;
        n->count++;
        naive_go_on(r, rng, test_random(rng) % 3 != 0);
    }
    token_buf_fini(&history);
    naive_request *other = &n->all[test_random(rng) % (uint64_t)RAD_MAX(n->count, 1)];
    if (n->count && other->turn) naive_go_on(other, rng, test_random(rng) % 2);
}

TEST(histories_are_those_of_a_naive_tree)
{
    uint64_t seed = test_seed(), rng = seed;
    for (uint32_t run = 0; run < test_scale(40, 400); run++) {
        engine *e = NULL;
        sessions *s = NULL;
        api_error err;
        char name[SESSION_ID_BYTES];
        CHECK_OK(engine_create(NULL, NULL, &e, NULL));
        const sessions_params p = {
            .engine = e, .max_sessions = 2, .idle_ns = UINT64_MAX / 2, .max_bytes = 64 << 20};
        CHECK_OK(sessions_create(&p, &s));
        CHECK(sessions_open(s, NULL, "s", false, 0, name, &err));
        naive_session *n = calloc(1, sizeof *n);
        CHECK(n != NULL);
        while (n->count < 60 && n->count < NAIVE_MOST)
            naive_round(s, n, &rng);
        if (run % 2) CHECK(sessions_close(s, NULL, "s", &err)); /* while some run */
        for (int i = 0; i < n->count; i++)
            if (n->all[i].turn) naive_go_on(&n->all[i], &rng, true);
        if (run % 2 == 0) CHECK(sessions_close(s, NULL, "s", &err));
        CHECKF(sessions_bytes(s) == 0, "seed %llu: %llu bytes are left\n", (unsigned long long)seed,
               (unsigned long long)sessions_bytes(s));
        sessions_destroy(s);
        CHECK(e->sessions_open == 0);
        engine_destroy(e);
        free(n);
    }
}

TEST_MAIN()
