/* test_api_fields.c - no field of a request is dropped in silence: what is not used and might
 * change the answer is refused by name, and docs/fields.md says what the code does.
 *
 *     RADISH_WRITE_DOCS=1 build/release/tests/test_api_fields    writes docs/fields.md anew */
#include "test.h"

#include "server/api_fields.h"
#include "server/api_request.h"

#include <stdio.h>

#define DOCUMENT RADISH_SOURCE_DIR "/docs/fields.md"

/* A body that is taken, with `member` (JSON, or "") in `place`; the caller frees. */
static char *body_with(unsigned place, const char *member)
{
    const char *forms[API_NUM_PLACES] = {
        "{\"prompt\":\"a\"%s%s}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]%s%s}",
        "{\"text\":\"a\"%s%s}",
        "{\"text\":\"a\",\"sampling_params\":{\"n\":1%s%s}}",
        "{\"prompt\":\"a\",\"stream\":true,\"stream_options\":{\"include_usage\":true%s%s}}",
        "{\"prompt\":\"a\",\"response_format\":{\"type\":\"text\"%s%s}}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"%s%s}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"%s%s}]}]}",
        "{\"hicache_storage_backend\":\"file:x\"%s%s}",
        "{\"prompt\":\"a\"%s%s}",
        "{\"tokens\":[1]%s%s}",
        "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]%s%s}",
        "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
        "\"text\":\"a\"%s%s}]}]}",
        "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
        "\"tools\":[{\"name\":\"f\"%s%s}]}",
        "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
        "\"output_config\":{\"effort\":\"low\"%s%s}}",
        "{\"input\":\"a\"%s%s}",
        "{\"input\":\"a\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"%s%s}]}",
        "{\"input\":\"a\",\"text\":{\"format\":{\"type\":\"text\"}%s%s}}",
        "{\"input\":\"a\",\"reasoning\":{\"effort\":\"low\"%s%s}}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]%s%s}",
        "{\"prompt\":\"a\"%s%s}",
        "{\"prompt\":\"a\",\"options\":{\"seed\":1%s%s}}",
        "{\"rid\":\"a\"%s%s}",
        "{\"prompt\":\"a\",\"session_params\":{\"id\":\"a\"%s%s}}",
        "{\"session_id\":\"a\"%s%s}",
        "{\"session_id\":\"a\"%s%s}",
        "{\"text\":\"a\"%s%s}",
        "{\"input\":\"a\"%s%s}",
        "{\"input\":\"a\"%s%s}",
        "{\"prompt\":\"a\"%s%s}",
        "{\"prompt\":\"a\",\"structured_outputs\":{\"json_object\":false%s%s}}"};
    char *body = malloc(strlen(member) + 300);
    if (!body) abort();
    snprintf(body, strlen(member) + 300, forms[__builtin_ctz(place)], *member ? "," : "", member);
    return body;
}

/* What the endpoint says of `"name": value` in that place: the status, 200 for taken. */
static int ask(unsigned place, const char *name, const char *value, api_error *err)
{
    static const api_kind kinds[API_NUM_PLACES] = {
        API_COMPLETIONS, API_CHAT, API_GENERATE,    API_GENERATE, API_COMPLETIONS, API_COMPLETIONS,
        API_CHAT,        API_CHAT, API_COMPLETIONS, API_TOKENIZE, API_DETOKENIZE,
        API_MESSAGES,    API_MESSAGES, API_MESSAGES, API_MESSAGES,
        API_RESPONSES,   API_RESPONSES, API_RESPONSES, API_RESPONSES,
        API_OLLAMA_CHAT, API_OLLAMA_GENERATE, API_OLLAMA_GENERATE,
        API_COMPLETIONS, API_COMPLETIONS, API_COMPLETIONS, API_COMPLETIONS, API_PIN,
        API_EMBEDDINGS,  API_OLLAMA_EMBED, API_OLLAMA_EMBEDDINGS, API_COMPLETIONS};
    char member[256];
    api_request r;
    *err = (api_error){.http_status = 200};
    snprintf(member, sizeof member, "\"%s\":%s", name, value);
    char *body = body_with(place, name[0] ? member : "");
    if (place & (IN_STORE | IN_ABORT | IN_OPEN_SESSION | IN_CLOSE_SESSION)) { /* no prompts */
        json_t *json = json_loads(body, 0, NULL);
        CHECK(json != NULL);
        api_check_fields(json, place, err);
        json_decref(json);
    } else if (api_request_parse(kinds[__builtin_ctz(place)], body, strlen(body), NULL, &r, err)) {
        api_request_fini(&r);
        err->http_status = 200;
    }
    free(body);
    return err->http_status;
}

TEST(the_table_is_sorted_and_no_place_has_two_rows_of_a_name)
{
    for (size_t i = 0; i + 1 < api_num_fields; i++) {
        const api_field *a = &api_fields[i];
        CHECKF(strcmp(a->name, a[1].name) <= 0, "%s before %s\n", a->name, a[1].name);
        for (size_t k = i + 1; k < api_num_fields && !strcmp(a->name, api_fields[k].name); k++)
            CHECKF(!(a->places & api_fields[k].places), "%s twice\n", a->name);
        CHECKF(a->words && (a->use == FIELD_REFUSED || !a->neutral), "%s\n", a->name);
    }
}

/* Every row in every place of it: the refused with something that asks for something, with each
 * of their neutral values and with null; the harmless with anything at all. */
TEST(every_row_does_what_it_says)
{
    api_error err;
    for (size_t i = 0; i < api_num_fields; i++)
        for (unsigned place = 1; place < 1u << API_NUM_PLACES; place <<= 1) {
            const api_field *f = &api_fields[i];
            if (!(f->places & place) || f->use == FIELD_USED) continue;
            int want = f->use == FIELD_REFUSED ? 400 : 200;
            int got = ask(place, f->name, "{\"x\":[1,\"y\"]}", &err);
            CHECKF(got == want, "%s in %s: %d\n", f->name, api_place_name(place), got);
            CHECK(want == 200 || (!strcmp(err.param, f->name) && strstr(err.message, f->name)));
            CHECKF(ask(place, f->name, "null", &err) == 200, "%s: null\n", f->name);
            for (const char *word = f->neutral; word && *word;) {
                char value[64];
                int len = (int)strcspn(word, " ");
                snprintf(value, sizeof value, "%.*s", len, word);
                CHECKF(ask(place, f->name, value, &err) == 200, "%s: %s\n", f->name, value);
                word += len + (word[len] == ' ');
            }
        }
}

TEST(what_is_not_listed_is_refused_by_name)
{
    api_error err;
    for (unsigned place = 1; place < 1u << API_NUM_PLACES; place <<= 1) {
        int want = place == IN_MESSAGE ? 200 : 400; /* that reaches the template */
        CHECK(ask(place, "", "", &err) == 200);
        CHECKF(ask(place, "temprature", "0.5", &err) == want, "%s\n", api_place_name(place));
        CHECK(want == 200 || (!strcmp(err.param, "temprature") &&
                              strstr(err.message, "'temprature' is not known in") &&
                              strstr(err.message, api_place_name(place))));
        CHECK(ask(place, "temprature", "null", &err) == 200);
        CHECK(want == 200 || ask(place, "temprature", "false", &err) == 400);
    }
    CHECK(ask(IN_GENERATE, "temperature", "0", &err) == 400);
    CHECK(strstr(err.message, "belongs into 'sampling_params'"));
    CHECK(ask(IN_SAMPLING, "return_logprob", "true", &err) == 400);
    CHECK(strstr(err.message, "belongs beside 'sampling_params'"));
}

/* The error is JSON whatever the name: cut behind a whole character. */
TEST(a_long_name_is_cut_behind_a_character)
{
    for (int shift = 0; shift < 4; shift++) {
        char name[200] = "", out[48];
        memset(name, 'a', (size_t)shift);
        for (int i = 0; i < 30; i++)
            strcat(name, "\xe2\x82\xac");
        api_shown(name, out, sizeof out);
        json_t *text = json_string(out);
        CHECKF(text && strlen(out) >= 44 && strlen(out) < 48, "%d: %zu\n", shift, strlen(out));
        json_decref(text);
        api_error err;
        CHECK(ask(IN_CHAT, name, "1", &err) == 400);
        text = json_pack("{s:s,s:s}", "m", err.message, "p", err.param);
        CHECK(text != NULL);
        json_decref(text);
    }
}

/* What strangers found answered with 200, and what clients of the peers send. */
TEST(fields_of_the_peers_are_refused_or_used)
{
    static const struct {
        unsigned place;
        const char *name, *value;
        int status;
    } cases[] = {
        {IN_COMPLETIONS, "guided_choice", "[\"a\"]", 200},
        {IN_CHAT, "guided_choice", "[]", 400},
        {IN_CHAT, "guided_json", "{\"type\":\"object\"}", 200},
        {IN_CHAT, "structured_outputs", "{\"choice\":[\"a\"]}", 200},
        {IN_CHAT, "structured_outputs", "7", 400},
        {IN_COMPLETIONS, "grammar", "\"root ::= x\"", 200},
        {IN_COMPLETIONS, "grammar", "{}", 400},
        {IN_CHAT, "modalities", "[\"text\\u0000audio\"]", 400},
        {IN_GENERATE, "lora_path", "\"x\"", 400},
        {IN_CHAT, "lora_path", "\"x\"", 400},
        {IN_CHAT, "session_params", "{\"id\":\"x\"}", 200},
        {IN_CHAT, "continue_final_message", "true", 400},
        {IN_CHAT, "continue_final_message", "false", 200},
        {IN_CHAT, "allowed_token_ids", "[1]", 400},
        {IN_CHAT, "bad_words", "[\"x\"]", 400},
        {IN_CHAT, "enable_thinking", "false", 400},
        {IN_CHAT, "add_generation_prompt", "false", 400},
        {IN_CHAT, "mm_processor_kwargs", "{\"a\":1}", 400},
        {IN_CHAT, "prompt_logprobs", "0", 200},
        {IN_CHAT, "echo", "true", 400},
        {IN_SAMPLING, "json_schema", "\"{}\"", 200},
        {IN_SAMPLING, "regex", "\"a+\"", 200},
        {IN_SAMPLING, "ebnf", "\"root ::= x\"", 200},
        {IN_SAMPLING, "max_tokens", "5", 400},
        {IN_GENERATE, "max_new_tokens", "5", 400},
        {IN_CHAT, "max_new_tokens", "5", 400},
        {IN_CHAT, "repeat_last_n", "64,\"presence_penalty\":1", 400}, /* of all penalties there */
        {IN_CHAT, "repeat_last_n", "-1", 200},
        {IN_CHAT, "store", "true", 200},
        {IN_CHAT, "metadata", "{\"a\":\"b\"}", 200},
        {IN_CHAT, "service_tier", "\"flex\"", 200},
        {IN_CHAT, "safety_identifier", "\"x\"", 200},
        {IN_CHAT, "prompt_cache_key", "\"x\"", 200},
        {IN_CHAT, "user", "\"x\"", 200},
        {IN_CHAT, "modalities", "[\"text\"]", 200},
        {IN_CHAT, "modalities", "[\"text\",\"audio\"]", 400},
        {IN_CHAT, "response_format", "{\"type\":\"text\"}", 200},
        {IN_CHAT, "response_format", "{\"type\":\"json_object\"}", 200},
        {IN_CHAT, "response_format", "{\"type\":\"json_schema\"}", 400},
        {IN_CHAT, "response_format", "{\"type\":\"xml\"}", 400},
        {IN_RESPONSE_FORMAT, "json_schema", "{}", 200},
        {IN_CHAT, "parallel_tool_calls", "false", 200}, /* there are no tools */
        /* the server refuses it where calls are not read */
        {IN_CHAT, "parallel_tool_calls", "false,\"tools\":[{\"type\":\"function\"}]", 200},
        {IN_CHAT, "reasoning_effort", "\"low\"", 200},
        {IN_CHAT, "reasoning_effort", "\"Low!\"", 400},
        {IN_COMPLETIONS, "reasoning_effort", "\"low\"", 400},
        {IN_CHAT, "include_reasoning", "false", 400},
        {IN_CHAT, "tool_choice", "\"required\"", 400},
        {IN_CHAT, "tool_choice", "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}", 400},
        {IN_CHAT, "parallel_tool_calls", "true,\"tools\":[{\"type\":\"function\"}]", 200},
        {IN_CHAT, "best_of", "1.0", 200},
        {IN_CHAT, "best_of", "true", 400},
        {IN_CHAT, "tool_choice", "\"none\"", 200},
        {IN_CHAT, "tool_choice", "\"none\\u0000x\"", 400},
        {IN_MESSAGE, "prefix", "true", 400},
        {IN_MESSAGE, "refusal", "\"x\"", 200},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        api_error err;
        int status = ask(cases[i].place, cases[i].name, cases[i].value, &err);
        CHECKF(status == cases[i].status, "%s: %s in %s: %d %s\n", cases[i].name, cases[i].value,
               api_place_name(cases[i].place), status, err.message);
        CHECKF(status == 200 || !strcmp(err.param, cases[i].name), "%s: %s\n", cases[i].name,
               err.param);
    }
}

/* ---- the document ---- */

static void print_place_names(FILE *out, unsigned places)
{
    const char *comma = "";
    for (unsigned place = 1; place < 1u << API_NUM_PLACES; place <<= 1) {
        if (!(places & place)) continue;
        fprintf(out, "%s`%s`", comma, api_place_name(place));
        comma = ", ";
    }
}

static void print_table(FILE *out, api_field_use use, const char *title, const char *columns)
{
    fprintf(out, "\n## %s\n\n%s\n", title, columns);
    for (size_t i = 0; i < api_num_fields; i++) {
        const api_field *f = &api_fields[i];
        if (f->use != use) continue;
        fprintf(out, "| `%s` | ", f->name);
        print_place_names(out, f->places);
        fprintf(out, " | ");
        if (use == FIELD_REFUSED && f->neutral) fprintf(out, "`%s`", f->neutral);
        if (use == FIELD_REFUSED) fprintf(out, " | ");
        fprintf(out, "%s |\n", f->words);
    }
}

static char *document(void)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    if (!out) abort();
    fprintf(out,
            "# What a request may hold\n\n"
            "A field is used, or changes no answer and is accepted, or is refused with a 400 "
            "that names it.\nA field that is in none of these tables is refused, too, since "
            "it might change the answer; `null`\nis always \"not given\". What a message holds "
            "beside the fields listed here reaches the chat template\nunder its name. Tools "
            "reach it as they are; `strict`, or a `tool_choice` that wants a call, holds the "
            "model\nto their schema.\n\n"
            "This file is printed from `src/server/api_fields.c`; `tests/test_api_fields.c` "
            "compares the two.\n");
    print_table(out, FIELD_USED, "Used", "| field | in | |\n|---|---|---|");
    print_table(out, FIELD_HARMLESS, "Accepted, without an effect",
                "| field | in | why that changes no answer |\n|---|---|---|");
    print_table(out, FIELD_REFUSED, "Refused",
                "| field | in | accepted as | instead |\n|---|---|---|---|");
    fclose(out);
    return text;
}

TEST(the_document_says_what_the_code_does)
{
    char *want = document();
    if (getenv("RADISH_WRITE_DOCS")) {
        FILE *out = fopen(DOCUMENT, "w");
        CHECK(out && fputs(want, out) >= 0 && fclose(out) == 0);
    }
    size_t len = strlen(want);
    char *is = calloc(1, len + 2);
    FILE *in = fopen(DOCUMENT, "r");
    CHECKF(in && is, "no %s\n", DOCUMENT);
    size_t n = fread(is, 1, len + 1, in);
    fclose(in);
    CHECKF(n == len && !memcmp(is, want, len),
           "docs/fields.md is not what api_fields.c says: RADISH_WRITE_DOCS=1 writes it\n");
    free(is);
    free(want);
}

TEST_MAIN()
