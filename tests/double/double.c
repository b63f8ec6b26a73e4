/* double.c - the program with a model that says what a script tells it to (radish_double).
 *
 * It is `radish` as it is built, commands and options and all, but for model_runner_create, in
 * whose place the linker puts the one below: so engine, scheduler, cache, tokenizer, chat template
 * and server are the real ones, and of the model file only its weights are not used.
 *
 * The script is the JSON file that RADISH_SCRIPT names, a list of rules:
 *
 *     {"when": "text", "unless": "text",        each a string or a list of them: all of, none of
 *      "say": "text with <|markers|>",          or "ids": [1, 2, 3]
 *      "end": "<|call|>",                       what ends it; else the vocabulary's EOS; null:
 * nothing "delay_ms": 20}                          before each token
 *
 * The first rule that holds for the prompt's text, control tokens included, is played. */
#include "engine/engine_impl.h"
#include "gear/runner_playback.h"
#include "model/model_runner.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_RULES = 64, REMEMBERED = 256 };

typedef struct rule {
    const json_t *json;
    token_buf say;
    bool endless;
    unsigned delay_ms;
} rule;

typedef struct script {
    json_t *json;
    tokenizer *tok;
    uint32_t num_rules;
    rule rules[MOST_RULES];
    struct {
        uint64_t prompt; /* its hash; 0: none yet */
        uint32_t rule;
    } found[REMEMBERED];
} script;

static const char NO_RULE[] = "no rule";

static void script_destroy(void *user)
{
    script *s = user;
    for (uint32_t i = 0; i < s->num_rules; i++)
        token_buf_fini(&s->rules[i].say);
    tokenizer_destroy(s->tok);
    json_decref(s->json);
    free(s);
}

static rad_status read_rule(const script *s, const json_t *json, rule *r, rad_error *err)
{
    const json_t *ids = json_object_get(json, "ids"), *end = json_object_get(json, "end");
    const json_t *say = json_object_get(json, "say");
    rad_status status = RAD_OK;
    *r = (rule){.json = json};
    r->delay_ms = (unsigned)json_integer_value(json_object_get(json, "delay_ms"));
    for (size_t i = 0; i < json_array_size(ids) && !status; i++)
        status = token_buf_push(&r->say, (rad_token)json_integer_value(json_array_get(ids, i)));
    if (say && !status)
        status = tokenizer_encode(s->tok, json_string_value(say), json_string_length(say),
                                  TOKENIZER_PARSE_SPECIAL | TOKENIZER_NO_PREFIX, 0, &r->say, err);
    r->endless = json_is_null(end);
    rad_token last = json_is_string(end)
                         ? tokenizer_find(s->tok, json_string_value(end), json_string_length(end))
                         : tokenizer_eos(s->tok);
    if (r->endless || status) return status;
    if (last < 0) return rad_fail(err, RAD_E_INVAL, "double: the vocabulary has no such end");
    return token_buf_push(&r->say, last);
}

static rad_status read_script(const rad_env *env, const gguf_file *file, script *s, rad_error *err)
{
    const char *path = getenv("RADISH_SCRIPT");
    json_error_t where;
    rad_status status = tokenizer_create(env, file, &s->tok, err);
    if (status) return status;
    s->json = path ? json_load_file(path, 0, &where) : NULL;
    size_t count = json_array_size(s->json);
    if (!count || count >= MOST_RULES)
        return rad_fail(err, RAD_E_INVAL, "double: RADISH_SCRIPT '%s' is no list of 1 to %d rules",
                        path ? path : "", MOST_RULES - 1);
    for (size_t i = 0; i < count && !status; i++)
        status = read_rule(s, json_array_get(s->json, i), &s->rules[s->num_rules++], err);
    json_t *none = json_pack("{s:s}", "say", NO_RULE);
    if (!status) status = read_rule(s, none, &s->rules[s->num_rules++], err);
    s->rules[s->num_rules - 1].json = NULL;
    json_decref(none);
    return status;
}

/* How many of `words` are in the text, and how many there are. */
static size_t count_in(const json_t *words, const char *text, size_t *of)
{
    size_t n = 0;
    *of = json_is_array(words) ? json_array_size(words) : json_is_string(words);
    for (size_t i = 0; i < *of; i++)
        n += strstr(text, json_string_value(json_is_array(words) ? json_array_get(words, i)
                                                                 : words)) != NULL;
    return n;
}

static uint32_t find_rule(const script *s, const rad_token *prompt, uint32_t n)
{
    detokenizer d;
    text_buf text = {0};
    detokenizer_init(&d, s->tok, false, false);
    for (uint32_t i = 0; i < n; i++)
        if (detokenizer_push(&d, prompt[i], &text) != RAD_OK) abort();
    if (detokenizer_finish(&d, &text) != RAD_OK || text_buf_append(&text, "", 1) != RAD_OK) abort();
    uint32_t which = 0;
    for (; s->rules[which].json; which++) {
        size_t all, some;
        if (count_in(json_object_get(s->rules[which].json, "when"), text.data, &all) == all &&
            count_in(json_object_get(s->rules[which].json, "unless"), text.data, &some) == 0)
            break;
    }
    text_buf_fini(&text);
    return which;
}

static rad_token choose(void *user, const rad_token *prompt, uint32_t num_prompt,
                        const rad_token *output, uint32_t num_output)
{
    script *s = user;
    uint64_t hash = 1;
    (void)output;
    for (uint32_t i = 0; i < num_prompt; i++)
        hash = (hash ^ (uint32_t)prompt[i]) * UINT64_C(0x100000001b3) | 1;
    uint32_t at = (uint32_t)(hash >> 20) % REMEMBERED;
    if (s->found[at].prompt != hash) {
        s->found[at].prompt = hash;
        s->found[at].rule = find_rule(s, prompt, num_prompt);
    }
    const rule *r = &s->rules[s->found[at].rule];
    if (r->delay_ms) usleep(r->delay_ms * 1000);
    if (num_output < r->say.len) return r->say.ids[num_output];
    return r->endless ? tokenizer_find(s->tok, "x", 1) : tokenizer_eos(s->tok);
}

rad_status __wrap_model_runner_create(const rad_env *env, const gguf_file *file,
                                      const model_runner_params *params, runner **out,
                                      rad_error *err);

rad_status __wrap_model_runner_create(const rad_env *env, const gguf_file *file,
                                      const model_runner_params *params, runner **out,
                                      rad_error *err)
{
    script *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return rad_fail(err, RAD_E_NOMEM, "double: no memory");
    static model_config config; /* it is large */
    rad_status status = model_config_read(file, params->context_length, &config, err);
    if (!status) status = read_script(env, file, s, err);
    if (status) {
        script_destroy(s);
        return status;
    }
    const runner_playback_params p = {.vocab_size = tokenizer_vocab_size(s->tok),
                                      .context_length = config.context_length,
                                      .max_batch_logits = params->max_batch_logits,
                                      .choose = choose,
                                      .destroy = script_destroy,
                                      .user = s};
    return runner_playback_create(env, &p, out, err);
}
