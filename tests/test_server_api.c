/* test_server_api.c - HTTP in, events out: what completions, chat and generate answer, and in which
 * form; against a scripted engine. What a bad request gets is in test_server_errors.c. */
#include "server_rig.h"

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

/* ---- models ---- */

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

TEST_MAIN()
