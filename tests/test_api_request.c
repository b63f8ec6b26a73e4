/* test_api_request.c - request bodies become engine requests, whatever happens to memory. */
#include "test.h"

#include "server/api_request.h"

static bool parse(api_kind kind, const char *body, api_request *out, api_error *err)
{
    return api_request_parse(kind, body, strlen(body), NULL, out, err);
}

static void refused(api_kind kind, const char *body, const char *param, const char *words)
{
    api_request r;
    api_error err;
    CHECKF(!parse(kind, body, &r, &err), "taken: %s", body);
    CHECKF(err.http_status == 400, "%s: %d %s", body, err.http_status, err.message);
    CHECKF(!strcmp(err.param, param), "%s: param '%s'", body, err.param);
    CHECKF(strstr(err.message, words) != NULL, "%s: %s", body, err.message);
}

TEST(every_field_of_a_completion_arrives)
{
    api_request r;
    api_error err;
    CHECK(
        parse(API_COMPLETIONS,
              "{\"model\":\"m\",\"user\":\"u\",\"prompt\":\"h\\u00e9\\u0000!\",\"max_tokens\":7.0,"
              "\"temperature\":0.5,\"top_p\":0.25,\"top_k\":-1,\"min_p\":0.125,\"seed\":-1,"
              "\"stop\":[\"a\",\"bc\"],\"stop_token_ids\":[4,5],\"ignore_eos\":true,"
              "\"skip_special_tokens\":false,\"no_stop_trim\":true,\"priority\":-3,"
              "\"extra_key\":\"e\",\"cache_salt\":\"s\",\"stream\":true,"
              "\"stream_options\":{\"include_usage\":true},\"return_token_ids\":true,"
              "\"n\":1,\"best_of\":1,\"echo\":false,\"logprobs\":null,\"suffix\":\"\","
              "\"presence_penalty\":0,\"frequency_penalty\":0.0,\"logit_bias\":{},"
              "\"response_format\":{\"type\":\"text\"},\"some_future_field\":null}",
              &r, &err));
    const engine_request *q = &r.items[0];
    CHECK(r.num_items == 1 && !r.batch && r.stream && r.include_usage && r.return_token_ids);
    CHECK(q->text_len == 5 && memcmp(q->text, "h\xc3\xa9\0!", 5) == 0 && !q->ids && !q->messages);
    CHECK(q->max_new_tokens == 7 && q->sampling.temperature == 0.5f && q->sampling.top_p == 0.25f);
    CHECK(q->sampling.top_k == -1 && q->sampling.min_p == 0.125f);
    CHECK(q->has_seed && q->sampling.seed == UINT64_MAX);
    CHECK(q->num_stop == 2 && !strcmp(q->stop[0], "a") && !strcmp(q->stop[1], "bc"));
    CHECK(q->num_stop_token_ids == 2 && q->stop_token_ids[1] == 5);
    CHECK(q->ignore_eos && q->keep_special && q->no_stop_trim && q->priority == -3);
    CHECK(!strcmp(q->extra_key, "e") && !strcmp(q->cache_salt, "s"));
    api_request_fini(&r);
    CHECK(!r.items && !r.root && !r.blocks);
}

TEST(null_means_not_given)
{
    api_request r;
    api_error err;
    CHECK(parse(API_COMPLETIONS,
                "{\"prompt\":[1,2],\"max_tokens\":null,\"temperature\":null,\"stop\":null,"
                "\"seed\":null,\"n\":null,\"stream\":null,\"stream_options\":null,"
                "\"cache_salt\":null,\"priority\":null,\"response_format\":null}",
                &r, &err));
    CHECK(r.items[0].num_ids == 2 && r.items[0].ids[1] == 2 && r.items[0].max_new_tokens == 16);
    CHECK(r.items[0].sampling.temperature == 1 && !r.items[0].has_seed && !r.items[0].cache_salt);
    api_request_fini(&r);
}

TEST(a_batch_shares_everything_but_the_prompt)
{
    api_request r;
    api_error err;
    CHECK(parse(API_COMPLETIONS,
                "{\"prompt\":[[1],\"two\",[3,3,3]],\"stop\":\"x\",\"seed\":9,\"cache_salt\":\"s\"}",
                &r, &err));
    CHECK(r.num_items == 3 && r.batch);
    CHECK(r.items[0].num_ids == 1 && r.items[1].text_len == 3 && r.items[2].num_ids == 3);
    CHECK(!r.items[0].text && !r.items[1].ids && !r.items[2].text);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(r.items[i].num_stop == 1 && r.items[i].sampling.seed == 9 && r.items[i].has_seed);
        CHECK(!strcmp(r.items[i].cache_salt, "s") && r.items[i].max_new_tokens == 16);
    }
    api_request_fini(&r);
}

TEST(chat_with_tools_goes_on_as_json)
{
    api_request r;
    api_error err;
    CHECK(parse(
        API_CHAT,
        "{\"messages\":[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"be\"},"
        "{\"type\":\"text\",\"text\":\" brief\"}]},{\"role\":\"assistant\",\"content\":null,"
        "\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":"
        "\"{\\\"b\\\":1,\\\"a\\\":2.0}\"}}]},{\"role\":\"tool\",\"content\":\"x\","
        "\"tool_call_id\":\"c\"}],\"tools\":[{\"type\":\"function\"}],"
        "\"chat_template_kwargs\":{\"enable_thinking\":false}}",
        &r, &err));
    const engine_request *q = r.items;
    static const char wanted[] =
        "{\"messages\":[{\"role\":\"system\",\"content\":\"be brief\"},{\"role\":\"assistant\","
        "\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":"
        "{\"b\":1,\"a\":2.0}}}]},{\"role\":\"tool\",\"content\":\"x\",\"tool_call_id\":\"c\","
        "\"name\":\"f\"}],\"tools\":[{\"type\":\"function\"}],\"chat_template_kwargs\":{\"enable_"
        "thinking\":false}}";
    CHECK(!q->messages && q->chat_json);
    CHECKF(q->chat_json_len == strlen(wanted) && !memcmp(q->chat_json, wanted, strlen(wanted)),
           "%.*s\n", (int)q->chat_json_len, q->chat_json);
    api_request_fini(&r);
}

TEST(chat_joins_parts_and_asks_for_as_much_as_fits)
{
    api_request r;
    api_error err;
    CHECK(parse(API_CHAT,
                "{\"messages\":[{\"role\":\"system\",\"content\":\"be brief\"},"
                "{\"role\":\"assistant\",\"content\":null},{\"role\":\"user\",\"content\":["
                "{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"\"},"
                "{\"type\":\"text\",\"text\":\"bc\"}]},{\"role\":\"user\",\"content\":[]}]}",
                &r, &err));
    const engine_request *q = &r.items[0];
    CHECK(q->num_messages == 4 && q->max_new_tokens == -1);
    CHECK(q->messages[0].content_len == 8 && q->messages[1].content_len == 0);
    CHECK(q->messages[2].content_len == 3 && !memcmp(q->messages[2].content, "abc", 3));
    CHECK(q->messages[3].content_len == 0 && !strcmp(q->messages[3].role, "user"));
    api_request_fini(&r);
    CHECK(parse(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}],\"max_tokens\":5}",
                &r, &err));
    CHECK(r.items[0].max_new_tokens == 5);
    api_request_fini(&r);
}

/* What is foretold arrives as one text, of all prompts and choices the very same. */
TEST(predictions_arrive)
{
    static const struct {
        api_kind kind;
        const char *body;
    } bodies[] = {
        {API_CHAT,
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"n\":2,\"prediction\":%s}"},
        {API_COMPLETIONS, "{\"prompt\":[\"a\",\"b\"],\"prediction\":%s}"},
        {API_GENERATE, "{\"text\":[\"a\",\"b\"],\"prediction\":%s}"},
        {API_GENERATE, "{\"text\":[\"a\",\"b\"],\"sampling_params\":[{},{}],\"prediction\":%s}"},
    };
    static const struct {
        const char *value, *text;
    } right[] = {
        {"{\"type\":\"content\",\"content\":\"xyz\"}", "xyz"},
        {"{\"type\":\"content\",\"content\":[{\"type\":\"text\",\"text\":\"x\"},{\"type\":\"text\","
         "\"text\":\"yz\"}]}",
         "xyz"},
        {"{\"type\":\"content\",\"content\":[]}", ""},
        {"null", NULL},
    };
    static const struct {
        const char *value, *word;
    } wrong[] = {
        {"\"xyz\"", "an object"},
        {"{\"content\":\"x\"}", "'type' must be \"content\""},
        {"{\"type\":\"text\",\"content\":\"x\"}", "'type' must be \"content\""},
        {"{\"type\":\"content\"}", "a string or a list"},
        {"{\"type\":\"content\",\"content\":7}", "a string or a list"},
        {"{\"type\":\"content\",\"content\":[\"x\"]}", "part 0"},
        {"{\"type\":\"content\",\"content\":[{\"type\":\"image_url\"}]}", "part 0"},
        {"{\"type\":\"content\",\"content\":\"x\",\"more\":1}", "alone"},
    };
    char body[400];
    api_request r;
    api_error err;
    for (size_t b = 0; b < RAD_COUNT(bodies); b++) {
        for (size_t i = 0; i < RAD_COUNT(right); i++) {
            const size_t len = right[i].text ? strlen(right[i].text) : 0;
            snprintf(body, sizeof body, bodies[b].body, right[i].value);
            CHECK(parse(bodies[b].kind, body, &r, &err));
            CHECK(r.num_items == 2 && r.predicts == (right[i].text != NULL));
            CHECK(r.items[0].prediction_len == len && (r.items[0].prediction != NULL) == (len > 0));
            CHECK(!len || !memcmp(r.items[0].prediction, right[i].text, len));
            CHECK(r.items[1].prediction == r.items[0].prediction);
            api_request_fini(&r);
        }
        for (size_t i = 0; i < RAD_COUNT(wrong); i++) {
            snprintf(body, sizeof body, bodies[b].body, wrong[i].value);
            refused(bodies[b].kind, body, "prediction", wrong[i].word);
        }
    }
    refused(API_RESPONSES, "{\"input\":\"a\",\"prediction\":{}}", "prediction", "not known");
}

TEST(generate_takes_parameters_per_prompt)
{
    api_request r;
    api_error err;
    CHECK(
        parse(API_GENERATE,
              "{\"input_ids\":[[1],[2]],\"rid\":\"mine\",\"sampling_params\":[{\"temperature\":0},"
              "{\"max_new_tokens\":0}],\"return_logprob\":false,\"top_logprobs_num\":0}",
              &r, &err));
    CHECK(r.num_items == 2 && !strcmp(r.rid, "mine"));
    CHECK(r.items[0].sampling.temperature == 0 && r.items[0].max_new_tokens == 128);
    CHECK(r.items[1].sampling.temperature == 1 && r.items[1].max_new_tokens == 0);
    api_request_fini(&r);
}

TEST(what_is_refused_is_named)
{
    refused(API_COMPLETIONS, "{\"prompt\":\"a\",\"response_format\":{\"type\":\"grammar\"}}",
            "response_format", "json_schema are");
    refused(API_COMPLETIONS, "{\"prompt\":\"a\",\"response_format\":{\"type\":\"json_schema\"}}",
            "response_format", "give it as 'schema' in 'json_schema'");
    refused(API_COMPLETIONS, "{\"prompt\":\"a\",\"guided_choice\":[]}", "guided_choice",
            "one at least");
    refused(API_COMPLETIONS, "{\"prompt\":\"a\",\"stream_options\":{}}", "stream_options",
            "stream");
    refused(API_COMPLETIONS, "{\"prompt\":\"a\",\"extra_key\":\"a\\u0000b\"}", "extra_key", "NUL");
    refused(API_COMPLETIONS, "{\"prompt\":\"a\",\"seed\":1e300}", "seed", "integer");
    refused(API_COMPLETIONS, "{\"prompt\":\"a\",\"priority\":3000000000}", "priority", "between");
    refused(API_COMPLETIONS, "{\"prompt\":[[1],[]]}", "prompt", "empty");
    refused(API_COMPLETIONS, "{\"prompt\":[1.5]}", "prompt", "token 0");
    refused(API_COMPLETIONS, "{\"prompt\":true}", "prompt", "string");
    refused(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
            "messages", "part 0");
    refused(API_CHAT, "{\"messages\":[{\"role\":\"\",\"content\":\"\"}]}", "messages", "role");
    refused(API_COMPLETIONS, "{\"prompt\":\"x\",\"tools\":[{}]}", "tools", "not supported");
    refused(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}],\"tools\":[1]}",
            "tools", "tool 0");
    refused(API_CHAT,
            "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}],\"tools\":[],"
            "\"tool_choice\":\"required\"}",
            "tool_choice", "no 'tools'");
    refused(API_CHAT,
            "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}],\"tools\":[{}],"
            "\"tool_choice\":{\"type\":\"function\"}}",
            "tool_choice", "names no function");
    refused(API_CHAT, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]}]}", "messages",
            "tool call 0");
    refused(API_CHAT,
            "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}],\"chat_template_kwargs\":1}",
            "chat_template_kwargs", "object");
    refused(API_GENERATE, "{\"text\":[1]}", "text", "string");
    refused(API_GENERATE, "{\"text\":[\"a\",\"b\"],\"rid\":[\"x\",\"y\"]}", "rid",
            "must be a string");
    refused(API_GENERATE, "{\"text\":\"a\",\"sampling_params\":{\"regex\":7}}", "regex", "string");
    refused(API_GENERATE, "{\"text\":\"a\",\"sampling_params\":{\"regex\":\"a\",\"ebnf\":\"b\"}}",
            "ebnf", "'regex' and 'ebnf' both");
    refused(API_GENERATE, "{\"text\":\"a\",\"sampling_params\":7}", "sampling_params", "object");
}

/* Every dialect's word for what an answer must look like. */
TEST(forms_arrive)
{
#define SCHEMA "{\"type\":\"object\",\"properties\":{}}"
    static const struct {
        api_kind kind;
        const char *body, *name;
        grammar_kind form;
        const char *text;
    } cases[] = {
        {API_CHAT, "\"response_format\":{\"type\":\"json_object\"}", "response_format",
         GRAMMAR_JSON_OBJECT, ""},
        {API_CHAT,
         "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
         "\"strict\":true,\"schema\":" SCHEMA "}}",
         "response_format", GRAMMAR_JSON_SCHEMA, SCHEMA},
        {API_COMPLETIONS, "\"response_format\":{\"type\":\"json_object\",\"schema\":" SCHEMA "}",
         "response_format", GRAMMAR_JSON_SCHEMA, SCHEMA},
        {API_CHAT, "\"regex\":\"a+\"", "regex", GRAMMAR_REGEX, "a+"},
        {API_CHAT, "\"grammar\":\"root ::= a\"", "grammar", GRAMMAR_EBNF, "root ::= a"},
        {API_CHAT, "\"guided_json\":" SCHEMA, "guided_json", GRAMMAR_JSON_SCHEMA, SCHEMA},
        {API_CHAT, "\"guided_choice\":[\"a\",\"b\"]", "guided_choice", GRAMMAR_CHOICE,
         "[\"a\",\"b\"]"},
        {API_CHAT, "\"structured_outputs\":{\"regex\":\"b\"}", "regex", GRAMMAR_REGEX, "b"},
        {API_CHAT, "\"structured_outputs\":{\"json_object\":true}", "json_object",
         GRAMMAR_JSON_OBJECT, ""},
        {API_GENERATE, "\"sampling_params\":{\"json_schema\":\"{}\"}", "json_schema",
         GRAMMAR_JSON_SCHEMA, "{}"},
        {API_GENERATE, "\"sampling_params\":{\"ebnf\":\"root ::= a\"}", "ebnf", GRAMMAR_EBNF,
         "root ::= a"},
        {API_RESPONSES,
         "\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"schema\":" SCHEMA "}}",
         "text.format", GRAMMAR_JSON_SCHEMA, SCHEMA},
        {API_OLLAMA_CHAT, "\"format\":\"json\"", "format", GRAMMAR_JSON_OBJECT, ""},
        {API_OLLAMA_CHAT, "\"format\":" SCHEMA, "format", GRAMMAR_JSON_SCHEMA, SCHEMA},
        {API_MESSAGES,
         "\"max_tokens\":9,\"output_config\":{\"format\":{\"type\":\"json_schema\","
         "\"schema\":" SCHEMA "}}",
         "output_config.format", GRAMMAR_JSON_SCHEMA, SCHEMA},
    };
#undef SCHEMA
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        const bool chat = cases[i].kind != API_COMPLETIONS && cases[i].kind != API_GENERATE &&
                          cases[i].kind != API_RESPONSES;
        char body[400];
        snprintf(body, sizeof body, "{%s,%s}",
                 chat ? "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"
                 : cases[i].kind == API_RESPONSES ? "\"input\":\"a\""
                 : cases[i].kind == API_GENERATE  ? "\"text\":[\"a\",\"b\"]"
                                                  : "\"prompt\":[\"a\",\"b\"]",
                 cases[i].body);
        api_request r;
        api_error err;
        CHECKF(api_request_parse(cases[i].kind, body, strlen(body), NULL, &r, &err), "%s: %s\n",
               body, err.message);
        for (uint32_t k = 0; k < r.num_items; k++) {
            const engine_form *form = r.items[k].form;
            CHECKF(
                form && form->spec.kind == cases[i].form && form->spec.closed_objects &&
                    !strcmp(form->name, cases[i].name) && form->spec.len == strlen(cases[i].text) &&
                    !memcmp(form->spec.text ? form->spec.text : "", cases[i].text, form->spec.len),
                "%s\n", body);
        }
        api_request_fini(&r);
    }
}

TEST(how_to_choose_arrives)
{
    api_request r;
    api_error err;
    CHECK(parse(API_COMPLETIONS,
                "{\"prompt\":\"a\",\"presence_penalty\":0.5,\"frequency_penalty\":-2,"
                "\"repetition_penalty\":1.25,\"min_tokens\":3,\"logprobs\":0,"
                "\"logit_bias\":{\"0\":-100,\"15043\":1.5,\"7\":100}}",
                &r, &err));
    const sampling_params *p = &r.items[0].sampling;
    CHECK(p->presence_penalty == 0.5f && p->frequency_penalty == -2);
    CHECK(p->repetition_penalty == 1.25f && p->min_new_tokens == 3);
    CHECK(p->logprobs && p->num_top_logprobs == 0 && r.logprobs);
    float of[3] = {0};
    CHECK(p->num_bias == 3);
    for (uint32_t i = 0; i < 3; i++)
        of[p->bias[i].id == 0 ? 0 : p->bias[i].id == 7 ? 1 : 2] = p->bias[i].bias;
    CHECK(of[0] == -100 && of[1] == 100 && of[2] == 1.5f);
    api_request_fini(&r);

    CHECK(parse(API_CHAT,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}],\"logprobs\":true,"
                "\"top_logprobs\":20}",
                &r, &err));
    CHECK(r.items[0].sampling.logprobs && r.items[0].sampling.num_top_logprobs == 20);
    api_request_fini(&r);
    CHECK(parse(API_GENERATE,
                "{\"text\":[\"a\",\"b\"],\"return_logprob\":true,\"top_logprobs_num\":2,"
                "\"logprob_start_len\":-1,\"return_text_in_logprobs\":true}",
                &r, &err));
    CHECK(r.items[1].sampling.logprobs && r.items[1].sampling.num_top_logprobs == 2);
    CHECK(r.text_in_logprobs && r.batch);
    api_request_fini(&r);
    CHECK(parse(API_COMPLETIONS, "{\"prompt\":\"a\",\"logprobs\":false}", &r, &err));
    CHECK(!r.logprobs && r.items[0].sampling.repetition_penalty == 1);
    api_request_fini(&r);
}

TEST(n_choices_are_n_requests_that_differ_in_their_seed)
{
    api_request r;
    api_error err;
    CHECK(parse(API_COMPLETIONS, "{\"prompt\":[\"a\",\"b\"],\"n\":3,\"seed\":5,\"logprobs\":1}", &r,
                &err));
    CHECK(r.num_items == 6 && r.n == 3);
    for (uint32_t i = 0; i < 6; i++) {
        CHECK(r.items[i].text[0] == "ab"[i / 3] && r.items[i].has_seed);
        CHECK(r.items[i].sampling.num_top_logprobs == 1 && r.items[i].max_new_tokens == 16);
        CHECK((r.items[i].sampling.seed == 5) == (i % 3 == 0));
        CHECK(r.items[i].sampling.seed == r.items[i % 3].sampling.seed);
        for (uint32_t k = i + 1; k < i / 3 * 3 + 3; k++)
            CHECK(r.items[i].sampling.seed != r.items[k].sampling.seed);
    }
    api_request_fini(&r);
    CHECK(parse(API_GENERATE, "{\"text\":\"a\",\"sampling_params\":{\"n\":2}}", &r, &err));
    CHECK(r.num_items == 2 && r.batch); /* /generate answers with a list */
    api_request_fini(&r);
}

TEST(logprobs_of_a_prompt_are_asked_for_in_each_dialect)
{
    api_request r;
    api_error err;
    CHECK(parse(API_GENERATE,
                "{\"text\":[\"a\",\"b\"],\"return_logprob\":true,\"logprob_start_len\":3,"
                "\"token_ids_logprob\":[7,9],\"sampling_params\":{\"n\":2}}",
                &r, &err));
    CHECK(r.num_items == 4 && r.num_id_logprobs == 2);
    for (int i = 0; i < 4; i++) { /* choices of one answer share what the first asks for */
        CHECK(r.items[i].prompt_logprobs == (i % 2 == 0) && r.items[i].prompt_logprobs_from == 3);
        CHECK(r.items[i].sampling.num_id_logprobs == 2 && r.items[i].sampling.id_logprobs[1] == 9);
    }
    api_request_fini(&r);
    CHECK(parse(API_COMPLETIONS,
                "{\"prompt\":\"a\",\"echo\":true,\"logprobs\":1,\"n\":2,\"stream\":true}", &r,
                &err));
    CHECK(r.items[0].prompt_logprobs && r.items[1].prompt_logprobs && r.echo);
    api_request_fini(&r);
    CHECK(parse(API_COMPLETIONS, "{\"prompt\":\"a\",\"echo\":true}", &r, &err));
    CHECK(!r.items[0].prompt_logprobs && !r.items[0].sampling.logprobs);
    api_request_fini(&r);
    CHECK(parse(API_COMPLETIONS, "{\"prompt\":\"a\",\"logprobs\":1,\"prompt_logprobs\":4}", &r,
                &err));
    CHECK(r.items[0].prompt_logprobs && r.items[0].sampling.num_top_logprobs == 4);
    CHECK(r.num_told_top == 1 && r.num_vllm_top == 4);
    api_request_fini(&r);
    CHECK(parse(API_COMPLETIONS, "{\"prompt\":[\"a\",\"b\"],\"n\":2,\"best_of\":5}", &r, &err));
    CHECK(r.num_items == 10 && r.best == 2 && !r.logprobs && r.items[9].sampling.logprobs);
    api_request_fini(&r);
    CHECK(parse(API_COMPLETIONS, "{\"prompt\":\"a\",\"best_of\":1}", &r, &err));
    CHECK(r.num_items == 1 && !r.best && !r.items[0].sampling.logprobs);
    api_request_fini(&r);
}

TEST(embeddings_are_asked_for_in_each_dialect)
{
    api_request r;
    api_error err;
    CHECK(parse(API_EMBEDDINGS,
                "{\"input\":[\"a\",[1,2]],\"dimensions\":8,\"encoding_format\":\"base64\","
                "\"cache_salt\":\"s\"}",
                &r, &err));
    CHECK(r.num_items == 2 && r.embed && r.base64 && r.dimensions == 8 && !r.stream);
    for (int i = 0; i < 2; i++) {
        CHECK(r.items[i].embed && r.items[i].max_new_tokens == 0);
        CHECK(!strcmp(r.items[i].cache_salt, "s") && !r.items[i].sampling.logprobs);
    }
    CHECK(r.items[1].num_ids == 2);
    api_request_fini(&r);
    CHECK(parse(API_OLLAMA_EMBED, "{\"model\":\"m:latest\",\"input\":[\"a\",\"b\"]}", &r, &err));
    CHECK(r.num_items == 2 && r.items[1].embed && !strcmp(r.model, "m"));
    api_request_fini(&r);
    CHECK(parse(API_OLLAMA_EMBEDDINGS, "{\"prompt\":\"a\"}", &r, &err) && r.num_items == 1);
    api_request_fini(&r);
    CHECK(parse(API_OLLAMA_EMBEDDINGS, "{\"prompt\":\"\"}", &r, &err) && !r.num_items);
    api_request_fini(&r);
    CHECK(parse(API_OLLAMA_EMBED, "{}", &r, &err) && !r.num_items); /* is the model there? */
    api_request_fini(&r);
    refused(API_EMBEDDINGS, "{\"input\":[]}", "input", "empty");
    refused(API_EMBEDDINGS, "{\"input\":\"a\",\"dimensions\":0}", "dimensions", "between 1");
    refused(API_EMBEDDINGS, "{\"input\":\"a\",\"encoding_format\":\"f\"}", "encoding_format",
            "base64");
    refused(API_OLLAMA_EMBED, "{\"input\":[1]}", "input", "a string");
    refused(API_OLLAMA_EMBED, "{\"input\":\"a\",\"options\":{\"temprature\":1}}", "temprature",
            "not known");
    refused(API_OLLAMA_EMBEDDINGS, "{\"prompt\":[\"a\"]}", "prompt", "must be a string");
    refused(API_OLLAMA_EMBEDDINGS, "{\"prompt\":\"a\",\"dimensions\":2}", "dimensions",
            "not known");
}

TEST(bad_ways_to_choose_are_refused_by_name)
{
    static const struct {
        const char *field, *param, *words;
    } bad[] = {
        {"\"n\":0", "n", "between 1 and 128"},
        {"\"n\":129", "n", "between 1 and 128"},
        {"\"n\":1.5", "n", "integer"},
        {"\"best_of\":2,\"n\":3", "best_of", "must not be less"},
        {"\"best_of\":2,\"stream\":true", "best_of", "do not go together"},
        {"\"best_of\":129", "best_of", "between 0 and 128"},
        {"\"presence_penalty\":2.5", "presence_penalty", "[-2, 2]"},
        {"\"presence_penalty\":\"1\"", "presence_penalty", "number"},
        {"\"frequency_penalty\":-1e30", "frequency_penalty", "[-2, 2]"},
        {"\"frequency_penalty\":1e300", "frequency_penalty", "out of range"},
        {"\"repetition_penalty\":0", "repetition_penalty", "(0, 2]"},
        {"\"repetition_penalty\":-1", "repetition_penalty", "(0, 2]"},
        {"\"min_tokens\":-1", "min_tokens", "between 0"},
        {"\"min_tokens\":17", "min_tokens", "at least 17"},
        {"\"logprobs\":21", "logprobs", "between 0 and 20"},
        {"\"logprobs\":true", "logprobs", "integer"},
        {"\"prompt_logprobs\":21", "prompt_logprobs", "between 0 and 20"},
        {"\"prompt_logprobs\":-1", "prompt_logprobs", "between 0 and 20"},
        {"\"prompt_logprobs\":1,\"stream\":true", "prompt_logprobs", "not told in a stream"},
        {"\"echo\":1", "echo", "true or false"},
        {"\"logit_bias\":[1]", "logit_bias", "object"},
        {"\"logit_bias\":{\"x\":1}", "logit_bias", "'x' is not a token id"},
        {"\"logit_bias\":{\"\":1}", "logit_bias", "not a token id"},
        {"\"logit_bias\":{\"-1\":1}", "logit_bias", "not a token id"},
        {"\"logit_bias\":{\" 1\":1}", "logit_bias", "not a token id"},
        {"\"logit_bias\":{\"01\":1}", "logit_bias", "not a token id"},
        {"\"logit_bias\":{\"1.0\":1}", "logit_bias", "not a token id"},
        {"\"logit_bias\":{\"2147483648\":1}", "logit_bias", "not a token id"},
        {"\"logit_bias\":{\"99999999999999999999999\":1}", "logit_bias", "not a token id"},
        {"\"logit_bias\":{\"1\":\"a\"}", "logit_bias", "bias of 1"},
        {"\"logit_bias\":{\"1\":101}", "logit_bias", "[-100, 100]"},
        {"\"logit_bias\":{\"1\":1e300}", "logit_bias", "[-100, 100]"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char body[200];
        snprintf(body, sizeof body, "{\"prompt\":\"a\",%s}", bad[i].field);
        refused(API_COMPLETIONS, body, bad[i].param, bad[i].words);
    }
    const char *chat = "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}],%s}";
    char body[200];
    snprintf(body, sizeof body, chat, "\"top_logprobs\":2");
    refused(API_CHAT, body, "top_logprobs", "wants 'logprobs'");
    snprintf(body, sizeof body, chat, "\"logprobs\":3");
    refused(API_CHAT, body, "logprobs", "true or false");
    snprintf(body, sizeof body, chat, "\"logprobs\":true,\"top_logprobs\":21");
    refused(API_CHAT, body, "top_logprobs", "between 0 and 20");
    refused(API_GENERATE, "{\"text\":\"a\",\"return_logprob\":true,\"logprob_start_len\":-2}",
            "logprob_start_len", "-1");
    refused(API_GENERATE, "{\"text\":\"a\",\"return_logprob\":1}", "return_logprob", "true or");
    refused(API_GENERATE, "{\"text\":\"a\",\"return_logprob\":true,\"token_ids_logprob\":[-1]}",
            "token_ids_logprob", "not a token id");
    refused(API_GENERATE, "{\"text\":\"a\",\"return_logprob\":true,\"token_ids_logprob\":7}",
            "token_ids_logprob", "a list");
    refused(API_GENERATE, "{\"text\":\"a\",\"sampling_params\":{\"min_new_tokens\":129}}",
            "min_new_tokens", "at least 129");
    refused(API_GENERATE, "{\"text\":[\"a\",\"b\"],\"sampling_params\":[{\"n\":2},{\"n\":3}]}", "n",
            "the same for all");
}

/* A list one longer than the limit, as text; the caller frees. */
static char *many(const char *head, const char *item, size_t count, const char *tail)
{
    char *out = malloc(strlen(head) + count * (strlen(item) + 1) + strlen(tail) + 1), *at = out;
    if (!out) abort();
    at += sprintf(at, "%s", head);
    for (size_t i = 0; i < count; i++)
        at += sprintf(at, "%s%s", i ? "," : "", item);
    strcpy(at, tail);
    return out;
}

TEST(counts_are_bounded)
{
    char *body = many("{\"prompt\":[", "\"a\"", API_MAX_PROMPTS + 1, "]}");
    refused(API_COMPLETIONS, body, "prompt", "1025 prompts");
    free(body);
    body = many("{\"prompt\":\"a\",\"stop\":[", "\"a\"", API_MAX_STOP + 1, "]}");
    refused(API_COMPLETIONS, body, "stop", "65 strings");
    free(body);
    body = many("{\"prompt\":\"a\",\"stop_token_ids\":[", "1", API_MAX_STOP_TOKENS + 1, "]}");
    refused(API_COMPLETIONS, body, "stop_token_ids", "at most 256");
    free(body);
    body = many("{\"n\":2,\"prompt\":[", "\"a\"", API_MAX_PROMPTS / 2 + 1, "]}");
    refused(API_COMPLETIONS, body, "n", "513 prompts with n = 2");
    free(body);
    char *biases = malloc((ENGINE_MAX_LOGIT_BIAS + 1) * 16 + 64), *at = biases;
    at += sprintf(at, "{\"prompt\":\"a\",\"logit_bias\":{");
    for (int i = 0; i <= ENGINE_MAX_LOGIT_BIAS; i++)
        at += sprintf(at, "%s\"%d\":1", i ? "," : "", i);
    strcpy(at, "}}");
    refused(API_COMPLETIONS, biases, "logit_bias", "1025 entries");
    free(biases);
    body = many("{\"prompt\":[", "1", JSON_IN_MAX_VALUES, "]}");
    refused(API_COMPLETIONS, body, "", "values");
    free(body);
    body = many("{\"prompt\":\"", "xxxxxxxx", 1 << 16, "\"}"); /* commas in a string are text */
    api_request r;
    api_error err;
    CHECK(parse(API_COMPLETIONS, body, &r, &err));
    CHECK(r.items[0].text_len == (9u << 16) - 1);
    api_request_fini(&r);
    free(body);
}

/* ---- memory ---- */

/* Ten tool calls whose arguments are long lists in strings: each below the limits, together not.
 * They are counted before any of them is built, and given back whatever happened. */
TEST(values_inside_strings_count_as_the_bodys_do)
{
    enum { CALLS = 10 };
    api_request r;
    api_error err;
    char *list = many("{\\\"a\\\":[", "{}", 500000, "]}");
    size_t cap = CALLS * (strlen(list) + 200) + 1000;
    char *body = malloc(cap), *at = body;
    CHECK(body != NULL);
    at += sprintf(at, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[");
    for (int i = 0; i < CALLS; i++)
        at += sprintf(at, "%s{\"function\":{\"name\":\"f\",\"arguments\":\"%s\"}}", i ? "," : "",
                      list);
    strcpy(at, "]},{\"role\":\"user\",\"content\":\"a\"}]}");
    refused(API_CHAT, body, "", "more than 4194304 values");

    memory_budget budget = {.limit = 300 << 20};
    CHECK(!api_request_parse(API_CHAT, body, strlen(body), &budget, &r, &err));
    CHECKF(err.http_status == 413 && strstr(err.message, "314572800"), "%s", err.message);
    CHECK(budget.used == 0 && budget.peak > 0 && budget.peak <= budget.limit);
    budget.limit = 500 << 20;
    CHECK(memory_budget_take(&budget, 450 << 20)); /* others' */
    CHECK(!api_request_parse(API_CHAT, body, strlen(body), &budget, &r, &err));
    CHECKF(err.http_status == 503 && strstr(err.message, "try again"), "%s", err.message);
    CHECK(budget.used == 450 << 20);
    free(body);

    budget = (memory_budget){.limit = 1 << 20};
    const char *small = "{\"prompt\":[\"a\",\"b\"],\"stop\":[\"x\",\"y\"]}";
    CHECK(api_request_parse(API_COMPLETIONS, small, strlen(small), &budget, &r, &err));
    CHECK(budget.used > 1000);
    CHECK(r.items[0].stop == r.items[1].stop); /* so that the engine copies them once */
    api_request_fini(&r);
    CHECK(budget.used == 0);
    small = "{\"text\":[\"a\",\"b\"],\"sampling_params\":{\"stop\":[\"x\"],"
            "\"logit_bias\":{\"1\":2}}}";
    CHECK(api_request_parse(API_GENERATE, small, strlen(small), &budget, &r, &err));
    CHECK(r.items[0].stop == r.items[1].stop && r.items[1].num_stop == 1);
    CHECK(r.items[0].sampling.bias == r.items[1].sampling.bias && r.items[1].text[0] == 'b');
    api_request_fini(&r);
    free(list);
    CHECK(budget.used == 0);
}

static long fail_at, allocs, outstanding;

static void *failing_malloc(size_t bytes)
{
    if (fail_at >= 0 && allocs++ >= fail_at) return NULL;
    outstanding++;
    return malloc(bytes);
}

static void counting_free(void *memory)
{
    if (memory) outstanding--;
    free(memory);
}

/* Fails jansson's 1st allocation, then its 2nd, ... until the parse succeeds: each
 * time a refusal in words, and not a byte left behind. */
static void survive(api_kind kind, const char *body)
{
    bool done = false;
    for (long n = 0; !done; n++) {
        api_request r;
        api_error err;
        fail_at = n;
        allocs = outstanding = 0;
        done = parse(kind, body, &r, &err);
        if (done)
            api_request_fini(&r);
        else
            CHECK(err.http_status >= 400 && err.message[0]);
        CHECKF(outstanding == 0, "%ld left after failing %ld", outstanding, n);
        CHECK(n < 2000);
    }
    fail_at = -1;
}

TEST(parsing_survives_every_allocation_failing)
{
    json_set_alloc_funcs(failing_malloc, counting_free);
    survive(API_CHAT,
            "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
            "\"text\":\"hello\"}]}],\"stop\":[\"a\",\"b\"],\"seed\":5,\"temperature\":0.5,\"n\":2,"
            "\"logit_bias\":{\"5\":1,\"6\":2},\"logprobs\":true}");
    survive(
        API_MESSAGES,
        "{\"max_tokens\":9,\"system\":[{\"type\":\"text\",\"text\":\"s\"}],\"messages\":[{"
        "\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":[{\"type\":"
        "\"thinking\",\"thinking\":\"t\"},{\"type\":\"tool_use\",\"id\":\"i\",\"name\":\"f\"}]},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"i\","
        "\"content\":[{\"type\":\"text\",\"text\":\"r\"}]}]}],\"tools\":[{\"name\":\"f\"}],"
        "\"stop_sequences\":[\"x\"]}");
    survive(
        API_RESPONSES,
        "{\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"custom_tool_call\","
        "\"call_id\":\"c\",\"name\":\"p\",\"input\":\"x\"},{\"type\":"
        "\"custom_tool_call_output\",\"call_id\":\"c\",\"output\":\"r\"}],\"instructions\":\"i\","
        "\"tools\":[{\"type\":\"custom\",\"name\":\"p\"}]}");
    survive(API_OLLAMA_CHAT,
            "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
            "\"arguments\":{}}}]},{\"role\":\"tool\",\"tool_name\":\"f\",\"content\":\"r\"}],"
            "\"options\":{\"stop\":[\"x\"]}}");
    json_set_alloc_funcs(malloc, free);
}

/* A valid body with bytes changed, dropped and doubled: taken or refused, never more. */
TEST(mangled_bodies_are_taken_or_refused)
{
    static const char *const bodies[] = {
        "{\"prompt\":[\"a\",[1,2]],\"stop\":[\"x\"],\"max_tokens\":3,\"stream\":true,"
        "\"logit_bias\":{\"5\":1},\"n\":2,\"logprobs\":3,\"echo\":true,"
        "\"stream_options\":{\"include_usage\":true}}",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"t\"}]}],"
        "\"session_params\":{\"id\":\"s\",\"rid\":\"r\",\"offset\":-3,\"replace\":true}}",
        "{\"text\":[\"a\",\"b\"],\"sampling_params\":[{},{\"stop_token_ids\":[1]}],\"rid\":\"r\","
        "\"return_logprob\":true,\"logprob_start_len\":0,\"token_ids_logprob\":[1]}",
        [API_TOKENIZE] = "{\"prompt\":[\"a\",\"b\"],\"return_token_strs\":true}",
        [API_DETOKENIZE] = "{\"tokens\":[[1,2],[3]],\"skip_special_tokens\":false}",
        [API_MESSAGES] =
            "{\"max_tokens\":9,\"system\":[{\"type\":\"text\",\"text\":\"s\"}],\"messages\":[{"
            "\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":[{\"type\":"
            "\"tool_use\",\"id\":\"i\",\"name\":\"f\",\"input\":{}}]}],\"tools\":[{\"name\":\"f\"}]"
            "}",
        [API_COUNT_TOKENS] = "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
                             "\"tool_result\",\"tool_use_id\":\"i\",\"content\":\"r\"}]}]}",
        [API_RESPONSES] =
            "{\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"function_call\","
            "\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":"
            "\"function_call_output\",\"call_id\":\"c\",\"output\":\"r\"}],\"instructions\":\"i\"}",
        [API_OLLAMA_CHAT] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"options\":{"
                            "\"num_predict\":3,\"stop\":[\"x\"]},\"think\":true}",
        [API_OLLAMA_GENERATE] = "{\"prompt\":\"a\",\"system\":\"s\",\"model\":\"m:latest\"}",
        [API_PIN] = "{\"token_ids\":[1,2,3],\"ttl_seconds\":1.5,\"cache_salt\":\"a\"}",
        [API_EMBEDDINGS] = "{\"input\":[\"a\",[1,2]],\"dimensions\":8,\"encoding_format\":"
                           "\"base64\",\"cache_salt\":\"s\"}",
        [API_OLLAMA_EMBED] = "{\"input\":[\"a\",\"b\"],\"model\":\"m:latest\",\"dimensions\":8,"
                             "\"options\":{\"num_ctx\":8},\"truncate\":true}",
        [API_OLLAMA_EMBEDDINGS] = "{\"prompt\":\"a\",\"keep_alive\":5}",
    };
    uint64_t seed = test_seed(), state = seed, taken = 0, rounds = test_scale(30000, 400000);
    for (uint64_t i = 0; i < rounds; i++) {
        char body[512];
        api_kind kind = (api_kind)(test_random(&state) % API_NUM_KINDS);
        size_t len = strlen(bodies[kind]);
        memcpy(body, bodies[kind], len);
        for (uint64_t changes = test_random(&state) % 4; changes; changes--) {
            size_t at = test_random(&state) % len;
            uint64_t how = test_random(&state) % 3;
            if (how == 0) body[at] = "{}[]\",:0x\x80"[test_random(&state) % 10];
            if (how == 1) memmove(body + at, body + at + 1, --len - at);
            if (how == 2) memmove(body + at + 1, body + at, len++ - at);
        }
        api_request r;
        api_error err;
        if (api_request_parse(kind, body, len, NULL, &r, &err)) {
            bool ollama = kind == API_OLLAMA_CHAT || kind == API_OLLAMA_GENERATE ||
                          kind == API_OLLAMA_EMBED || kind == API_OLLAMA_EMBEDDINGS;
            CHECKF(r.num_items >= 1 || ollama, "seed %llu", (unsigned long long)seed);
            api_request_fini(&r);
            taken++;
        } else {
            CHECKF(err.http_status == 400 && err.message[0], "seed %llu", (unsigned long long)seed);
        }
    }
    CHECK(taken > rounds / 10 && taken < rounds);
}

TEST_MAIN()
