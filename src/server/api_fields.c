/* api_fields.c - the table of request fields, and the look at a request's own.
 *
 * A field that is silently dropped is a wrong answer that nobody sees: a grammar that does not
 * constrain, a misspelt temperature. So a request may hold what is listed and nothing else, and
 * an error names the first member that is not, in the order in which they were sent.
 *
 * Invariant, tested: rows are sorted by name, and no two of a name share a place. */
#include "server/api_fields.h"

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPENAI   (IN_COMPLETIONS | IN_CHAT)
#define USED     FIELD_USED
#define HARMLESS FIELD_HARMLESS
#define REFUSED  FIELD_REFUSED

/* clang-format off */
const api_field api_fields[] = {
    {"add_generation_prompt", IN_CHAT | IN_TOKENIZE, REFUSED, "true", "/v1/completions goes on behind any text"},
    {"add_special_tokens", IN_COMPLETIONS | IN_TOKENIZE, REFUSED, "true", "give token ids"},
    {"add_special_tokens", IN_CHAT, REFUSED, "false", "the template says them"},
    {"allowed_token_ids", OPENAI | IN_SAMPLING, REFUSED, NULL, "'logit_bias' of -100 bars tokens"},
    {"annotations", IN_MESSAGE, HARMLESS, NULL, "of an earlier answer; reaches the chat template"},
    {"audio", IN_CHAT, REFUSED, NULL, "this server reads text"},
    {"audio", IN_MESSAGE, REFUSED, NULL, "this server reads text"},
    {"audio_data", OPENAI | IN_GENERATE, REFUSED, "[] \"\"", "this server reads text"},
    {"background", OPENAI, REFUSED, "false", NULL},
    {"bad_words", OPENAI | IN_SAMPLING, REFUSED, "[]", "'logit_bias' of -100 bars tokens"},
    {"bad_words_ids", OPENAI | IN_SAMPLING, REFUSED, "[]", "'logit_bias' of -100 bars tokens"},
    {"best_of", OPENAI | IN_SAMPLING, REFUSED, "1 0", "'n' gives all of them"},
    {"best_of", IN_GENERATE, REFUSED, "1 0", "'n' gives all of them"},
    {"bootstrap_host", OPENAI | IN_GENERATE, REFUSED, "\"\" []", NULL},
    {"bootstrap_port", OPENAI | IN_GENERATE, REFUSED, "\"\" []", NULL},
    {"bootstrap_room", OPENAI | IN_GENERATE, REFUSED, "\"\" []", NULL},
    {"cache_control", IN_MESSAGE | IN_PART, HARMLESS, NULL, "the cache keeps by its own policy"},
    {"cache_prompt", OPENAI, HARMLESS, NULL, "the cache never changes an answer"},
    {"cache_salt", OPENAI | IN_GENERATE, USED, NULL,
     "a namespace of the cache: only requests with the same salt share"},
    {"chat_template", IN_CHAT, REFUSED, NULL, "--chat-template of the server names it"},
    {"chat_template_kwargs", IN_CHAT | IN_TOKENIZE, USED, NULL, "variables of the chat template"},
    {"content", IN_MESSAGE, USED, NULL,
     "a string, or a list of text parts; of a tool any JSON, of assistants and tools null as well"},
    {"continue_final_message", IN_CHAT, REFUSED, "false", "/v1/completions goes on behind any text"},
    {"continuous_usage_stats", IN_STREAM_OPTIONS, REFUSED, "false", "usage comes in the last chunk"},
    {"conversation_id", OPENAI | IN_GENERATE, HARMLESS, NULL, "an identity; nothing depends on it"},
    {"custom_labels", OPENAI | IN_GENERATE, HARMLESS, NULL, "there are no such metrics"},
    {"custom_logit_processor", OPENAI | IN_GENERATE | IN_SAMPLING, REFUSED, "\"\"", NULL},
    {"custom_params", OPENAI | IN_SAMPLING, REFUSED, "{}", NULL},
    {"data_parallel_rank", OPENAI | IN_GENERATE, HARMLESS, NULL, "there is one rank"},
    {"detokenize", OPENAI | IN_SAMPLING, REFUSED, "true", "use 'return_token_ids'"},
    {"do_sample", OPENAI, REFUSED, "true", "'temperature': 0 takes the likeliest token"},
    {"documents", IN_CHAT, REFUSED, "[]", "give it in 'chat_template_kwargs', to a template that reads it"},
    {"dry_allowed_length", OPENAI, HARMLESS, NULL, "only with 'dry_multiplier'"},
    {"dry_base", OPENAI, HARMLESS, NULL, "only with 'dry_multiplier'"},
    {"dry_multiplier", OPENAI, REFUSED, "0", NULL},
    {"dry_penalty_last_n", OPENAI, HARMLESS, NULL, "only with 'dry_multiplier'"},
    {"dry_sequence_breakers", OPENAI, HARMLESS, NULL, "only with 'dry_multiplier'"},
    {"dynatemp_exponent", OPENAI, HARMLESS, NULL, "only with 'dynatemp_range'"},
    {"dynatemp_range", OPENAI, REFUSED, "0", NULL},
    {"early_stopping", OPENAI | IN_SAMPLING, REFUSED, "false", NULL},
    {"ebnf", OPENAI | IN_SAMPLING, REFUSED, "\"\" false {} []", "output cannot be constrained here"},
    {"echo", OPENAI, REFUSED, "false", NULL},
    {"enable_thinking", OPENAI, REFUSED, NULL, "give it in 'chat_template_kwargs', to a template that reads it"},
    {"external_trace_header", OPENAI | IN_GENERATE, HARMLESS, NULL, "send the header X-Request-Id"},
    {"extra_key", OPENAI | IN_GENERATE, USED, NULL, "a namespace of the cache, as an adapter or a revision has"},
    {"frequency_penalty", OPENAI | IN_SAMPLING, USED, NULL, "[-2, 2]"},
    {"function_call", IN_CHAT, REFUSED, "\"none\" \"auto\"", "use 'tools'"},
    {"function_call", IN_MESSAGE, REFUSED, NULL, "use 'tool_calls'"},
    {"functions", IN_CHAT, REFUSED, "[]", "use 'tools'"},
    {"grammar", OPENAI | IN_SAMPLING, REFUSED, "\"\"", "output cannot be constrained here"},
    {"guided_choice", OPENAI | IN_SAMPLING, REFUSED, "\"\" false {} []", "output cannot be constrained here"},
    {"guided_decoding", OPENAI | IN_SAMPLING, REFUSED, "{}", "output cannot be constrained here"},
    {"guided_decoding_backend", OPENAI, HARMLESS, NULL, "there is no constrained output for it to make"},
    {"guided_grammar", OPENAI | IN_SAMPLING, REFUSED, "\"\" false {} []", "output cannot be constrained here"},
    {"guided_json", OPENAI | IN_SAMPLING, REFUSED, "\"\" false {} []", "output cannot be constrained here"},
    {"guided_regex", OPENAI | IN_SAMPLING, REFUSED, "\"\" false {} []", "output cannot be constrained here"},
    {"guided_whitespace_pattern", OPENAI | IN_SAMPLING, REFUSED, "\"\" false {} []",
     "output cannot be constrained here"},
    {"hicache_storage_backend", IN_STORE, USED, NULL, "file:DIR or redis:HOST:PORT,..."},
    {"hicache_storage_backend_extra_config_json", IN_STORE, USED, NULL,
     "options of the store, an object or one as a string"},
    {"hicache_storage_prefetch_policy", IN_STORE, REFUSED, NULL, "it is set when the server starts"},
    {"hicache_write_policy", IN_STORE, REFUSED, NULL, "it is set when the server starts"},
    {"id_slot", OPENAI, HARMLESS, NULL, "there are no slots to choose from"},
    {"ignore_eos", OPENAI | IN_SAMPLING, USED, NULL, "no end token ends the answer"},
    {"image_data", OPENAI | IN_GENERATE, REFUSED, "[] \"\"", "this server reads text"},
    {"include_obfuscation", IN_STREAM_OPTIONS, HARMLESS, NULL, "there is no padding in a stream"},
    {"include_reasoning", IN_COMPLETIONS, HARMLESS, NULL, "the answer is the model's whole text"},
    {"include_reasoning", IN_CHAT, REFUSED, "true", "clients may leave reasoning_content out themselves"},
    {"include_stop_str_in_output", OPENAI | IN_SAMPLING, USED, NULL, "as 'no_stop_trim'"},
    {"include_usage", IN_STREAM_OPTIONS, USED, NULL, "a chunk with usage ends the stream"},
    {"input_embeds", OPENAI | IN_GENERATE, REFUSED, "[]", "give text or token ids"},
    {"input_ids", IN_GENERATE, USED, NULL, "the prompt, or a list of them, as token ids"},
    {"json_object", OPENAI | IN_SAMPLING, REFUSED, "false", "output cannot be constrained here"},
    {"json_schema", OPENAI | IN_SAMPLING, REFUSED, "\"\" false {} []", "output cannot be constrained here"},
    {"json_schema", IN_RESPONSE_FORMAT, REFUSED, NULL, "output cannot be constrained here"},
    {"kv_transfer_params", OPENAI, REFUSED, "{}", NULL},
    {"length_penalty", OPENAI | IN_SAMPLING, REFUSED, "1", NULL},
    {"log_metrics", OPENAI | IN_GENERATE, HARMLESS, NULL, "metrics count every request"},
    {"logit_bias", OPENAI | IN_SAMPLING, USED, NULL, "token ids and what is added to their logits"},
    {"logits_processors", OPENAI | IN_SAMPLING, REFUSED, "[]", NULL},
    {"logprob_start_len", IN_GENERATE, USED, NULL, "-1: logprobs of the prompt are not there"},
    {"logprobs", IN_COMPLETIONS, USED, NULL, "a number of alternatives"},
    {"logprobs", IN_CHAT, USED, NULL, "true or false"},
    {"lora_id", OPENAI | IN_GENERATE, REFUSED, "\"\"", "one model is served"},
    {"lora_path", OPENAI | IN_GENERATE, REFUSED, "\"\"", "one model is served"},
    {"max_completion_tokens", IN_CHAT, USED, NULL, "as 'max_tokens'"},
    {"max_new_tokens", OPENAI, REFUSED, NULL, "its name here is 'max_tokens'"},
    {"max_new_tokens", IN_SAMPLING, USED, NULL, "most tokens of the answer; 128"},
    {"max_tokens", IN_COMPLETIONS, USED, NULL, "most tokens of the answer; 16"},
    {"max_tokens", IN_CHAT, USED, NULL, "most tokens of the answer; as many as the context has room for"},
    {"max_tokens", IN_SAMPLING, REFUSED, NULL, "its name here is 'max_new_tokens'"},
    {"media_io_kwargs", OPENAI, REFUSED, "{}", "this server reads text"},
    {"messages", IN_CHAT | IN_TOKENIZE, USED, NULL, "the conversation"},
    {"metadata", OPENAI, HARMLESS, NULL, "kept with stored answers, which there are none of"},
    {"min_new_tokens", OPENAI | IN_SAMPLING, USED, NULL, "before so many no end token is chosen"},
    {"min_p", OPENAI | IN_SAMPLING, USED, NULL, "[0, 1]"},
    {"min_tokens", OPENAI | IN_SAMPLING, USED, NULL, "as 'min_new_tokens'"},
    {"mirostat", OPENAI, REFUSED, "0", NULL},
    {"mirostat_eta", OPENAI, HARMLESS, NULL, "only with 'mirostat'"},
    {"mirostat_tau", OPENAI, HARMLESS, NULL, "only with 'mirostat'"},
    {"mm_processor_kwargs", OPENAI, REFUSED, "{}", "this server reads text"},
    {"modalities", IN_CHAT | IN_GENERATE, REFUSED, "[\"text\"] []", "this server reads text"},
    {"model", OPENAI | IN_GENERATE | IN_TOKENIZE | IN_DETOKENIZE, USED, NULL, "one of the served names; may be left out"},
    {"n", OPENAI | IN_SAMPLING, USED, NULL, "answers to each prompt"},
    {"n_predict", OPENAI, REFUSED, NULL, "its name here is 'max_tokens'"},
    {"n_probs", OPENAI, REFUSED, "0", "its name here is 'logprobs'"},
    {"name", IN_MESSAGE, USED, NULL, "reaches the chat template"},
    {"no_logs", OPENAI | IN_GENERATE, HARMLESS, NULL, "texts are never logged"},
    {"no_stop_trim", OPENAI | IN_SAMPLING, USED, NULL, "the stop string stays in the text"},
    {"nvext", OPENAI, REFUSED, "{}", NULL},
    {"parallel_tool_calls", IN_CHAT, USED, NULL, "false: the answer ends with its first call"},
    {"partial", IN_MESSAGE, REFUSED, "false", "/v1/completions goes on behind any text"},
    {"penalty_alpha", OPENAI, REFUSED, "0", NULL},
    {"prediction", IN_CHAT, HARMLESS, NULL, "a hint for speed"},
    {"prefix", IN_MESSAGE, REFUSED, "false", "/v1/completions goes on behind any text"},
    {"presence_penalty", OPENAI | IN_SAMPLING, USED, NULL, "[-2, 2]"},
    {"priority", OPENAI | IN_GENERATE, USED, NULL, "order of waiting and of eviction"},
    {"prompt", IN_COMPLETIONS, USED, NULL, "a text, token ids, or a list of either"},
    {"prompt", IN_TOKENIZE, USED, NULL, "a text, or a list of them"},
    {"prompt_cache_key", OPENAI, HARMLESS, NULL, "requests that begin alike share without it"},
    {"prompt_cache_retention", OPENAI, HARMLESS, NULL, "the cache evicts by its own policy"},
    {"prompt_embeds", OPENAI, REFUSED, "[]", "give text or token ids"},
    {"prompt_logprobs", OPENAI, REFUSED, "false", "logprobs are of the output"},
    {"reasoning", OPENAI, REFUSED, NULL, "give it in 'chat_template_kwargs', to a template that reads it"},
    {"reasoning", IN_MESSAGE, USED, NULL, "reaches the chat template"},
    {"reasoning_content", IN_MESSAGE, USED, NULL, "reaches the chat template"},
    {"reasoning_effort", IN_COMPLETIONS, REFUSED, NULL, "reasoning is for /v1/chat/completions"},
    {"reasoning_effort", IN_CHAT, USED, NULL,
     "goes to a chat template that reads it; none: enable_thinking and thinking are false there"},
    {"refusal", IN_MESSAGE, HARMLESS, NULL, "of an earlier answer; reaches the chat template"},
    {"regex", OPENAI | IN_SAMPLING, REFUSED, "\"\" false {} []", "output cannot be constrained here"},
    {"repeat_last_n", OPENAI, REFUSED, "-1", "penalties count the whole answer"},
    {"repeat_penalty", OPENAI, REFUSED, "1", "its name here is 'repetition_penalty'"},
    {"repetition_penalty", OPENAI | IN_SAMPLING, USED, NULL, "(0, 2]"},
    {"request_id", OPENAI, HARMLESS, NULL, "send the header X-Request-Id"},
    {"response_format", OPENAI, USED, NULL, "its type must be text"},
    {"return_cached_tokens_details", OPENAI | IN_GENERATE, HARMLESS, NULL, "they are always there with tiers"},
    {"return_hidden_states", OPENAI | IN_GENERATE, REFUSED, "false", NULL},
    {"return_logprob", IN_GENERATE, USED, NULL, "logprobs of the output"},
    {"return_prompt_token_ids", OPENAI | IN_GENERATE, REFUSED, "false", NULL},
    {"return_routed_experts", OPENAI | IN_GENERATE, REFUSED, "false", NULL},
    {"return_text_in_logprobs", IN_GENERATE, USED, NULL, "the tokens' texts beside their ids"},
    {"return_token_ids", OPENAI, USED, NULL, "choices[].token_ids"},
    {"return_token_strs", IN_TOKENIZE, USED, NULL, "the tokens' texts beside their ids"},
    {"return_tokens_as_token_ids", OPENAI, REFUSED, "false", "use 'return_token_ids'"},
    {"rid", OPENAI, HARMLESS, NULL, "there is nothing that could be asked for by it"},
    {"rid", IN_GENERATE, USED, NULL, "the answer's meta_info.id; one for all prompts"},
    {"role", IN_MESSAGE, USED, NULL, "the template's business; developer is read as system"},
    {"routed_dp_rank", OPENAI | IN_GENERATE, HARMLESS, NULL, "there is one rank"},
    {"safety_identifier", OPENAI, HARMLESS, NULL, "nothing depends on who asks"},
    {"samplers", OPENAI, REFUSED, NULL, NULL},
    {"sampling_params", IN_GENERATE, USED, NULL, "an object, or one for each prompt"},
    {"sampling_seed", OPENAI | IN_SAMPLING, USED, NULL, "as 'seed'"},
    {"seed", OPENAI | IN_SAMPLING, USED, NULL, "repeats an answer"},
    {"separate_reasoning", IN_COMPLETIONS, HARMLESS, NULL, "the answer is the model's whole text"},
    {"separate_reasoning", IN_CHAT, USED, NULL, "false: reasoning stays in the content"},
    {"service_tier", OPENAI, HARMLESS, NULL, "there is one"},
    {"session_id", OPENAI | IN_GENERATE, HARMLESS, NULL, "an identity; nothing depends on it"},
    {"session_params", OPENAI | IN_GENERATE, REFUSED, "{}",
     "send the whole conversation: what was computed of it is found in the cache"},
    {"skip_special_tokens", OPENAI | IN_SAMPLING, USED, NULL, "false: control tokens stay in the text"},
    {"skip_special_tokens", IN_DETOKENIZE, USED, NULL, "false: control tokens stay in the text; true"},
    {"spaces_between_special_tokens", OPENAI | IN_SAMPLING, HARMLESS, NULL,
     "control tokens are written without spaces, as fast tokenizers do"},
    {"stop", OPENAI | IN_SAMPLING, USED, NULL, "strings that end the answer"},
    {"stop_regex", OPENAI | IN_SAMPLING, REFUSED, "\"\" []", "'stop' takes strings"},
    {"stop_token_ids", OPENAI | IN_SAMPLING, USED, NULL, "tokens that end the answer"},
    {"store", OPENAI, HARMLESS, NULL, "answers are not kept"},
    {"stream", OPENAI | IN_GENERATE, USED, NULL, "server-sent events"},
    {"stream_options", OPENAI, USED, NULL, "see its fields"},
    {"stream_reasoning", OPENAI, HARMLESS, NULL, "reasoning comes in pieces, as the rest of a stream does"},
    {"structural_tag", OPENAI | IN_SAMPLING, REFUSED, "\"\" false {} []", "output cannot be constrained here"},
    {"structured_outputs", OPENAI | IN_SAMPLING, REFUSED, "{}", "output cannot be constrained here"},
    {"suffix", IN_COMPLETIONS, REFUSED, "\"\"", NULL},
    {"temperature", OPENAI | IN_SAMPLING, USED, NULL, "0: the likeliest token"},
    {"text", IN_GENERATE, USED, NULL, "the prompt, or a list of them"},
    {"text", IN_PART, USED, NULL, "the words"},
    {"tfs_z", OPENAI, REFUSED, "1", NULL},
    {"thinking", OPENAI, REFUSED, NULL, "give it in 'chat_template_kwargs', to a template that reads it"},
    {"thinking_budget", OPENAI, REFUSED, NULL, "give it in 'chat_template_kwargs', to a template that reads it"},
    {"token_ids_logprob", IN_GENERATE, REFUSED, "[] false", NULL},
    {"tokens", IN_DETOKENIZE, USED, NULL, "ids, or a list of lists of them"},
    {"tool_call_id", IN_MESSAGE, USED, NULL,
     "reaches the chat template; names the function of a result that has no 'name'"},
    {"tool_calls", IN_MESSAGE, USED, NULL, "go to the chat template, which must read them"},
    {"tool_choice", IN_COMPLETIONS, REFUSED, "\"auto\" \"none\"", "tools are for /v1/chat/completions"},
    {"tool_choice", IN_CHAT, USED, NULL,
     "auto, or none: the template does not hear of the tools; required and one function are refused"},
    {"tools", IN_COMPLETIONS, REFUSED, "[]", "tools are for /v1/chat/completions"},
    {"tools", IN_CHAT | IN_TOKENIZE, USED, NULL, "go to the chat template, which must read them"},
    {"top_a", OPENAI, REFUSED, "0", NULL},
    {"top_k", OPENAI | IN_SAMPLING, USED, NULL, "-1 or 0: all"},
    {"top_logprobs", IN_COMPLETIONS, REFUSED, "0", "give the number as 'logprobs'"},
    {"top_logprobs", IN_CHAT, USED, NULL, "a number of alternatives"},
    {"top_logprobs_num", IN_GENERATE, USED, NULL, "a number of alternatives"},
    {"top_n_sigma", OPENAI, REFUSED, "-1 0", NULL},
    {"top_p", OPENAI | IN_SAMPLING, USED, NULL, "(0, 1]"},
    {"truncate_prompt_tokens", OPENAI | IN_SAMPLING, REFUSED, NULL, NULL},
    {"truncation", OPENAI, REFUSED, "\"disabled\"", NULL},
    {"type", IN_RESPONSE_FORMAT, USED, NULL, "text"},
    {"type", IN_PART, USED, NULL, "text"},
    {"typical_p", OPENAI, REFUSED, "1", NULL},
    {"use_beam_search", OPENAI | IN_SAMPLING, REFUSED, "false", NULL},
    {"user", OPENAI, USED, NULL, "a string; nothing depends on it"},
    {"verbosity", OPENAI, REFUSED, NULL, "give it in 'chat_template_kwargs', to a template that reads it"},
    {"video_data", OPENAI | IN_GENERATE, REFUSED, "[] \"\"", "this server reads text"},
    {"vllm_xargs", OPENAI, REFUSED, "{}", NULL},
    {"web_search_options", IN_CHAT, REFUSED, "{}", NULL},
    {"xtc_probability", OPENAI, REFUSED, "0", NULL},
    {"xtc_threshold", OPENAI, HARMLESS, NULL, "only with 'xtc_probability'"},
};
/* clang-format on */

const size_t api_num_fields = RAD_COUNT(api_fields);

const char *api_place_name(unsigned place)
{
    static const char *const names[API_NUM_PLACES] = {
        "/v1/completions", "/v1/chat/completions", "/generate",
        "sampling_params", "stream_options",       "response_format",
        "messages[]",      "messages[].content[]", "/hicache/storage-backend",
        "/tokenize",       "/detokenize"};
    return names[__builtin_ctz(place)];
}

/* The first row of that name, or NULL. */
static const api_field *find(const char *name)
{
    size_t from = 0, to = api_num_fields;
    while (from < to) {
        size_t middle = (from + to) / 2;
        if (strcmp(api_fields[middle].name, name) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from < api_num_fields && !strcmp(api_fields[from].name, name) ? &api_fields[from] : NULL;
}

static const api_field *find_in(const char *name, unsigned place)
{
    const api_field *f = find(name);
    for (; f && f < api_fields + api_num_fields && !strcmp(f->name, name); f++)
        if (f->places & place) return f;
    return NULL;
}

/* Of a string, whole: what stands behind a NUL character is not nothing. */
static bool is_short_text(const json_t *value)
{
    size_t len = json_string_length(value);
    return json_is_string(value) && len < 32 && strlen(json_string_value(value)) == len;
}

/* Whether `value` is the word of JSON in word[0..len). */
static bool is_word(const json_t *value, const char *word, size_t len)
{
    char text[64];
    if (json_is_number(value)) {
        char *end;
        double number = strtod(word, &end);
        return end == word + len && json_number_value(value) == number;
    }
    const json_t *only = json_array_size(value) == 1 ? json_array_get(value, 0) : NULL;
    if (json_is_boolean(value))
        snprintf(text, sizeof text, "%s", json_is_true(value) ? "true" : "false");
    else if (is_short_text(value))
        snprintf(text, sizeof text, "\"%s\"", json_string_value(value));
    else if (json_is_array(value) && !json_array_size(value))
        snprintf(text, sizeof text, "[]");
    else if (is_short_text(only))
        snprintf(text, sizeof text, "[\"%s\"]", json_string_value(only));
    else if (json_is_object(value) && !json_object_size(value))
        snprintf(text, sizeof text, "{}");
    else
        return false;
    return strlen(text) == len && memcmp(text, word, len) == 0;
}

static bool is_neutral(const json_t *value, const char *words)
{
    while (words && *words) {
        size_t len = strcspn(words, " ");
        if (is_word(value, words, len)) return true;
        words += len + (words[len] == ' ');
    }
    return false;
}

const char *api_shown(const char *name, char *out, size_t size)
{
    size_t len = strlen(name);
    if (len >= size) {
        len = size - 1;
        while (len && ((unsigned char)name[len] & 0xc0) == 0x80)
            len--;
    }
    memcpy(out, name, len);
    out[len] = 0;
    return out;
}

bool api_refuse_field(const char *name, const char *where, api_error *err)
{
    char word[48];
    api_shown(name, word, sizeof word);
    return api_fail(err, 400, word,
                    "'%s' is not known in %s; it is refused since it might change the answer", word,
                    where);
}

static bool refuse(const api_field *f, api_error *err)
{
    return api_fail(err, 400, f->name, "'%s' is not supported%s%s%s%s%s", f->name,
                    f->neutral ? " (but as: " : "", f->neutral ? f->neutral : "",
                    f->neutral ? ")" : "", f->words ? ": " : "", f->words ? f->words : "");
}

static bool refuse_unknown(const char *name, unsigned place, api_error *err)
{
    char word[48];
    api_shown(name, word, sizeof word);
    if (place == IN_GENERATE && find_in(name, IN_SAMPLING))
        return api_fail(err, 400, word, "'%s' belongs into 'sampling_params'", word);
    if (place == IN_SAMPLING && find_in(name, IN_GENERATE))
        return api_fail(err, 400, word, "'%s' belongs beside 'sampling_params', not into it", word);
    return api_refuse_field(name, api_place_name(place), err);
}

bool api_check_fields(const json_t *object, unsigned place, api_error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        if (json_is_null(value)) continue;
        const api_field *f = find_in(name, place);
        if (!f && place != IN_MESSAGE) return refuse_unknown(name, place, err);
        if (f && f->use == FIELD_REFUSED && !is_neutral(value, f->neutral)) return refuse(f, err);
    }
    return true;
}
