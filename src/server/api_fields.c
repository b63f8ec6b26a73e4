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
#define OLLAMA   (IN_OLLAMA_CHAT | IN_OLLAMA_GENERATE)
#define OL_EMBED (IN_OLLAMA_EMBED | IN_OLLAMA_EMBEDDINGS)
#define EMBED    (IN_EMBEDDINGS | OL_EMBED)
#define USED     FIELD_USED
#define HARMLESS FIELD_HARMLESS
#define REFUSED  FIELD_REFUSED

/* clang-format off */
const api_field api_fields[] = {
    {"abort_all", IN_ABORT, USED, NULL, "true: all requests of this key"},
    {"abort_message", IN_ABORT, HARMLESS, NULL, "the answer says that it was aborted"},
    {"add_generation_prompt", IN_CHAT | IN_TOKENIZE, USED, NULL, "true; false with 'continue_final_message', where it is so anyway"},
    {"add_special_tokens", IN_COMPLETIONS | IN_TOKENIZE | IN_EMBEDDINGS, REFUSED, "true", "give token ids"},
    {"add_special_tokens", IN_CHAT, REFUSED, "false", "the template says them"},
    {"allowed_callers", IN_MESSAGES_TOOL, HARMLESS, NULL, "the client runs its tools"},
    {"allowed_token_ids", OPENAI | IN_SAMPLING, REFUSED, NULL, "'logit_bias' of -100 bars tokens"},
    {"annotations", IN_MESSAGE, HARMLESS, NULL, "of an earlier answer; reaches the chat template"},
    {"audio", IN_CHAT, REFUSED, NULL, "this server reads text"},
    {"audio", IN_MESSAGE, REFUSED, NULL, "this server reads text"},
    {"audio_data", OPENAI | IN_GENERATE, REFUSED, "[] \"\"", "this server reads text"},
    {"background", OPENAI, REFUSED, "false", "answers are given while the client waits"},
    {"background", IN_RESPONSES, REFUSED, "false", "answers are given while the client waits"},
    {"bad_words", OPENAI | IN_SAMPLING, REFUSED, "[]", "'logit_bias' of -100 bars tokens"},
    {"bad_words_ids", OPENAI | IN_SAMPLING, REFUSED, "[]", "'logit_bias' of -100 bars tokens"},
    {"best_of", IN_COMPLETIONS, USED, NULL, "so many answers are made, and the 'n' told that the model found likeliest a token; all are counted"},
    {"best_of", IN_CHAT | IN_SAMPLING, REFUSED, "1 0", "'n' gives all of them"},
    {"best_of", IN_GENERATE, REFUSED, "1 0", "'n' gives all of them"},
    {"bootstrap_host", OPENAI | IN_GENERATE, REFUSED, "\"\" []", "prompts are computed where they are decoded"},
    {"bootstrap_port", OPENAI | IN_GENERATE, REFUSED, "\"\" []", "prompts are computed where they are decoded"},
    {"bootstrap_room", OPENAI | IN_GENERATE, REFUSED, "\"\" []", "prompts are computed where they are decoded"},
    {"cache_control", IN_MESSAGE | IN_PART, HARMLESS, NULL, "the cache keeps by its own policy"},
    {"cache_control", IN_MESSAGES | IN_BLOCK | IN_MESSAGES_TOOL, USED, NULL, "the prompt is pinned up to the last of them for the longest ttl, 5m or 1h, as far as --max-pinned-tokens goes"},
    {"cache_prompt", OPENAI, HARMLESS, NULL, "the cache never changes an answer"},
    {"cache_salt", OPENAI | IN_GENERATE, USED, NULL,
     "a namespace of the cache: only requests with the same salt share"},
    {"cache_salt", IN_MESSAGES, USED, NULL, "a namespace of the cache: only requests with the same salt share"},
    {"cache_salt", IN_RESPONSES, USED, NULL, "a namespace of the cache: only requests with the same salt share"},
    {"cache_salt", IN_PIN, USED, NULL, "that of the requests whose prefix it is"},
    {"cache_salt", EMBED, USED, NULL, "a namespace of the cache: only requests with the same salt share"},
    {"cache_salt", OLLAMA, USED, NULL, "a namespace of the cache: only requests with the same salt share"},
    {"caller", IN_BLOCK, HARMLESS, NULL, "of an earlier answer"},
    {"capacity_of_str_len", IN_OPEN_SESSION, HARMLESS, NULL, "all histories have one limit together"},
    {"chat_template", IN_CHAT, REFUSED, NULL, "--chat-template of the server names it"},
    {"chat_template_kwargs", IN_CHAT | IN_TOKENIZE | IN_PIN, USED, NULL, "variables of the chat template"},
    {"choice", IN_STRUCTURED_OUTPUTS, USED, NULL, "the answer is one of these texts"},
    {"citations", IN_BLOCK, HARMLESS, NULL, "of an earlier answer"},
    {"client_metadata", IN_RESPONSES, HARMLESS, NULL, "nothing depends on who asks"},
    {"container", IN_MESSAGES, REFUSED, "\"\"", "this server runs no tools"},
    {"content", IN_MESSAGE, USED, NULL,
     "a string, or a list of text parts; of a tool any JSON, of assistants and tools null as well"},
    {"content", IN_BLOCK, USED, NULL, "of a tool_result: a string or text blocks; an image or a document there becomes words that say so"},
    {"context", IN_REASONING, HARMLESS, NULL, "the template decides which earlier thoughts it reads"},
    {"context", IN_OLLAMA_GENERATE, REFUSED, "[]", "/api/chat has the history as messages"},
    {"context_management", IN_MESSAGES, HARMLESS, NULL, "the history is taken as it is sent"},
    {"context_management", IN_RESPONSES, REFUSED, "[]", "the history is taken as it is sent"},
    {"continue_final_message", IN_CHAT | IN_TOKENIZE, USED, NULL, "true: the answer goes on from the last message, the assistant's"},
    {"continuous_usage_stats", IN_STREAM_OPTIONS, REFUSED, "false", "usage comes in the last chunk"},
    {"conversation", IN_RESPONSES, REFUSED, NULL, "'previous_response_id' goes on from an answer"},
    {"conversation_id", OPENAI | IN_GENERATE, HARMLESS, NULL, "an identity; nothing depends on it"},
    {"custom_labels", OPENAI | IN_GENERATE, HARMLESS, NULL, "there are no such metrics"},
    {"custom_logit_processor", OPENAI | IN_GENERATE | IN_SAMPLING, REFUSED, "\"\"", "this server runs no code of clients; 'logit_bias' changes logits"},
    {"custom_params", OPENAI | IN_SAMPLING, REFUSED, "{}", "of a custom_logit_processor, which there is none of"},
    {"data_parallel_rank", OPENAI | IN_GENERATE, HARMLESS, NULL, "there is one rank"},
    {"defer_loading", IN_MESSAGES_TOOL, USED, NULL, "true: the model reads of the tool where a tool_reference names it first"},
    {"defer_loading", IN_RESPONSES_TOOL, REFUSED, "false", "this server searches no tools"},
    {"definition", IN_BLOCK, USED, NULL, "of a tool_addition's tool_definition"},
    {"description", IN_MESSAGES_TOOL, USED, NULL, "reaches the chat template"},
    {"description", IN_RESPONSES_TOOL, USED, NULL, "reaches the chat template"},
    {"detokenize", OPENAI | IN_SAMPLING, REFUSED, "true", "use 'return_token_ids'"},
    {"dimensions", IN_EMBEDDINGS | IN_OLLAMA_EMBED, USED, NULL, "so many numbers of the embedding, scaled to length 1 again"},
    {"disable_additional_properties", IN_STRUCTURED_OUTPUTS, HARMLESS, NULL, "a schema that lists properties has no others"},
    {"disable_any_whitespace", IN_STRUCTURED_OUTPUTS, HARMLESS, NULL, "white space has one form"},
    {"disable_fallback", IN_STRUCTURED_OUTPUTS, HARMLESS, NULL, "there is none"},
    {"do_sample", OPENAI, REFUSED, "true", "'temperature': 0 takes the likeliest token"},
    {"documents", IN_CHAT, REFUSED, "[]", "give it in 'chat_template_kwargs', to a template that reads it"},
    {"drop_previous_output", IN_SESSION_PARAMS, USED, NULL, "true: the history without that request's answer"},
    {"dry_allowed_length", OPENAI, HARMLESS, NULL, "only with 'dry_multiplier'"},
    {"dry_base", OPENAI, HARMLESS, NULL, "only with 'dry_multiplier'"},
    {"dry_multiplier", OPENAI, REFUSED, "0", "'repetition_penalty' and 'frequency_penalty' are there"},
    {"dry_penalty_last_n", OPENAI, HARMLESS, NULL, "only with 'dry_multiplier'"},
    {"dry_sequence_breakers", OPENAI, HARMLESS, NULL, "only with 'dry_multiplier'"},
    {"dynatemp_exponent", OPENAI, HARMLESS, NULL, "only with 'dynatemp_range'"},
    {"dynatemp_range", OPENAI, REFUSED, "0", "the temperature stays what 'temperature' says"},
    {"eager_input_streaming", IN_MESSAGES_TOOL, HARMLESS, NULL, "arguments are always streamed as they come"},
    {"early_stopping", OPENAI | IN_SAMPLING, REFUSED, "false", "of beam search, which there is none of"},
    {"ebnf", OPENAI | IN_SAMPLING, USED, NULL, "the answer is a text of this grammar: EBNF, GBNF too"},
    {"echo", IN_COMPLETIONS, USED, NULL, "true: the prompt comes first, with logprobs where these are asked for"},
    {"echo", IN_CHAT, REFUSED, "false", "the messages are the client's; /v1/completions echoes"},
    {"effort", IN_OUTPUT_CONFIG, USED, NULL, "of reasoning, where the template reads it"},
    {"effort", IN_REASONING, USED, NULL, "of reasoning, where the template reads it"},
    {"enable_thinking", OPENAI, REFUSED, NULL, "give it in 'chat_template_kwargs', to a template that reads it"},
    {"encoding_format", IN_EMBEDDINGS, USED, NULL, "float, or base64: of floats, the lowest byte first"},
    {"external_trace_header", OPENAI | IN_GENERATE, HARMLESS, NULL, "send the header X-Request-Id"},
    {"extra_key", OPENAI | IN_GENERATE, USED, NULL, "a namespace of the cache, as an adapter or a revision has"},
    {"extra_key", IN_MESSAGES, USED, NULL, "a namespace of the cache, as an adapter or a revision has"},
    {"extra_key", IN_RESPONSES, USED, NULL, "a namespace of the cache, as an adapter or a revision has"},
    {"extra_key", IN_PIN, USED, NULL, "that of the requests whose prefix it is"},
    {"extra_key", EMBED, USED, NULL, "a namespace of the cache, as an adapter or a revision has"},
    {"extra_key", OLLAMA, USED, NULL, "a namespace of the cache, as an adapter or a revision has"},
    {"format", IN_RESPONSES_TOOL, HARMLESS, NULL, "of a custom tool: nothing holds a model to a grammar"},
    {"format", IN_RESPONSES_TEXT, USED, NULL, "text, json_object or json_schema: the answer follows it"},
    {"format", IN_OUTPUT_CONFIG, USED, NULL, "json_schema: the answer follows the schema"},
    {"format", OLLAMA, USED, NULL, "json: the answer is a JSON object; a JSON Schema: it follows that"},
    {"frequency_penalty", OPENAI | IN_SAMPLING, USED, NULL, "[-2, 2]"},
    {"frequency_penalty", IN_OLLAMA_OPTIONS, USED, NULL, "[-2, 2]"},
    {"function_call", IN_CHAT, REFUSED, "\"none\" \"auto\"", "use 'tools'"},
    {"function_call", IN_MESSAGE, REFUSED, NULL, "use 'tool_calls'"},
    {"functions", IN_CHAT, REFUSED, "[]", "use 'tools'"},
    {"generate_summary", IN_REASONING, HARMLESS, NULL, "reasoning is told whole"},
    {"grammar", OPENAI | IN_SAMPLING, USED, NULL, "as ebnf"},
    {"grammar", IN_STRUCTURED_OUTPUTS, USED, NULL, "as ebnf"},
    {"guided_choice", OPENAI | IN_SAMPLING, USED, NULL, "the answer is one of these texts"},
    {"guided_decoding", OPENAI | IN_SAMPLING, REFUSED, "{}", "'structured_outputs' says it"},
    {"guided_decoding_backend", OPENAI, HARMLESS, NULL, "there is one"},
    {"guided_grammar", OPENAI | IN_SAMPLING, USED, NULL, "as ebnf"},
    {"guided_json", OPENAI | IN_SAMPLING, USED, NULL, "as json_schema"},
    {"guided_regex", OPENAI | IN_SAMPLING, USED, NULL, "as regex"},
    {"guided_whitespace_pattern", OPENAI | IN_SAMPLING, REFUSED, "\"\" false {} []", "white space is one blank behind each comma and colon"},
    {"hicache_storage_backend", IN_STORE, USED, NULL, "file:DIR or redis:HOST:PORT,..."},
    {"hicache_storage_backend_extra_config_json", IN_STORE, USED, NULL,
     "options of the store, an object or one as a string"},
    {"hicache_storage_prefetch_policy", IN_STORE, REFUSED, NULL, "it is set when the server starts"},
    {"hicache_write_policy", IN_STORE, REFUSED, NULL, "it is set when the server starts"},
    {"id", IN_BLOCK, USED, NULL, "of a tool_use"},
    {"id", IN_SESSION_PARAMS, USED, NULL, "the session that the request is a turn of"},
    {"id_slot", OPENAI, HARMLESS, NULL, "there are no slots to choose from"},
    {"ignore_eos", OPENAI | IN_SAMPLING, USED, NULL, "no end token ends the answer"},
    {"image_data", OPENAI | IN_GENERATE, REFUSED, "[] \"\"", "this server reads text"},
    {"images", IN_OLLAMA_GENERATE, USED, NULL, "[]: this server reads text"},
    {"include", IN_RESPONSES, USED, NULL, "what there is none of here is left out; message.output_text.logprobs is refused"},
    {"include_obfuscation", IN_STREAM_OPTIONS, HARMLESS, NULL, "there is no padding in a stream"},
    {"include_reasoning", IN_COMPLETIONS, HARMLESS, NULL, "the answer is the model's whole text"},
    {"include_reasoning", IN_CHAT, REFUSED, "true", "clients may leave reasoning_content out themselves"},
    {"include_stop_str_in_output", OPENAI | IN_SAMPLING, USED, NULL, "as 'no_stop_trim'"},
    {"include_usage", IN_STREAM_OPTIONS, USED, NULL, "a chunk with usage ends the stream"},
    {"inference_geo", IN_MESSAGES, HARMLESS, NULL, "there is one place"},
    {"input", IN_BLOCK, USED, NULL, "of a tool_use"},
    {"input", IN_EMBEDDINGS, USED, NULL, "a text, token ids, or a list of either"},
    {"input", IN_OLLAMA_EMBED, USED, NULL, "a text, or a list of them"},
    {"input", IN_RESPONSES, USED, NULL, "a string or a list of items"},
    {"input_embeds", OPENAI | IN_GENERATE, REFUSED, "[]", "give text or token ids"},
    {"input_examples", IN_MESSAGES_TOOL, REFUSED, "[]", "chat templates do not read them"},
    {"input_ids", IN_GENERATE, USED, NULL, "the prompt, or a list of them, as token ids"},
    {"input_schema", IN_MESSAGES_TOOL, USED, NULL, "reaches the chat template as parameters"},
    {"instructions", IN_RESPONSES, USED, NULL, "the system message; not carried over by 'previous_response_id'"},
    {"is_error", IN_BLOCK, HARMLESS, NULL, "the content of the result says it"},
    {"json", IN_STRUCTURED_OUTPUTS, USED, NULL, "as json_schema"},
    {"json_object", OPENAI | IN_SAMPLING, REFUSED, "false", "'response_format' of type json_object says it"},
    {"json_object", IN_STRUCTURED_OUTPUTS, USED, NULL, "true: the answer is a JSON object"},
    {"json_schema", OPENAI | IN_SAMPLING, USED, NULL, "the answer follows this schema, an object or one as a string"},
    {"json_schema", IN_RESPONSE_FORMAT, USED, NULL, "its schema; name, description and strict change nothing: schemas are always kept"},
    {"keep_alive", OLLAMA | OL_EMBED, HARMLESS, NULL, "the model stays"},
    {"kv_transfer_params", OPENAI, REFUSED, "{}", "K and V are not moved between servers"},
    {"length_penalty", OPENAI | IN_SAMPLING, REFUSED, "1", "of beam search, which there is none of"},
    {"log_metrics", OPENAI | IN_GENERATE, HARMLESS, NULL, "metrics count every request"},
    {"logit_bias", OPENAI | IN_SAMPLING, USED, NULL, "token ids and what is added to their logits"},
    {"logits_processors", OPENAI | IN_SAMPLING, REFUSED, "[]", "this server runs no code of clients; 'logit_bias' changes logits"},
    {"logprob_start_len", IN_GENERATE, USED, NULL, "logprobs of the prompt from this token on, none of the first of them; -1: none"},
    {"logprobs", IN_COMPLETIONS, USED, NULL, "a number of alternatives"},
    {"logprobs", IN_CHAT, USED, NULL, "true or false"},
    {"logprobs", OLLAMA, REFUSED, "false", "logprobs are told by /v1/chat/completions"},
    {"lora_id", OPENAI | IN_GENERATE, REFUSED, "\"\"", "one model is served"},
    {"lora_path", OPENAI | IN_GENERATE, REFUSED, "\"\"", "one model is served"},
    {"low_vram", IN_OLLAMA_OPTIONS, HARMLESS, NULL, "the server's own options say how it computes"},
    {"main_gpu", IN_OLLAMA_OPTIONS, HARMLESS, NULL, "the server's own options say how it computes"},
    {"max_completion_tokens", IN_CHAT, USED, NULL, "as 'max_tokens'"},
    {"max_new_tokens", OPENAI, REFUSED, NULL, "its name here is 'max_tokens'"},
    {"max_new_tokens", IN_SAMPLING, USED, NULL, "most tokens of the answer; 128"},
    {"max_output_tokens", IN_RESPONSES, USED, NULL, "most tokens of the answer; as many as the context has room for"},
    {"max_tokens", IN_COMPLETIONS, USED, NULL, "most tokens of the answer; 16"},
    {"max_tokens", IN_CHAT, USED, NULL, "most tokens of the answer; as many as the context has room for"},
    {"max_tokens", IN_SAMPLING, REFUSED, NULL, "its name here is 'max_new_tokens'"},
    {"max_tokens", IN_MESSAGES, USED, NULL, "most tokens of the answer; needed but for counting"},
    {"max_tool_calls", IN_RESPONSES, HARMLESS, NULL, "of tools that the server runs, and it runs none"},
    {"mcp_servers", IN_MESSAGES, REFUSED, "[]", "this server runs no tools"},
    {"media_io_kwargs", OPENAI, REFUSED, "{}", "this server reads text"},
    {"messages", IN_CHAT | IN_TOKENIZE | IN_PIN, USED, NULL, "the conversation"},
    {"messages", IN_MESSAGES, USED, NULL, "the conversation; a last message of the assistant's is gone on from"},
    {"messages", IN_OLLAMA_CHAT, USED, NULL, "the conversation; without one the answer is that the model is there"},
    {"metadata", OPENAI, HARMLESS, NULL, "kept with stored answers, which there are none of"},
    {"metadata", IN_MESSAGES, HARMLESS, NULL, "nothing depends on who asks"},
    {"metadata", IN_RESPONSES, USED, NULL, "comes back in the answer"},
    {"min_new_tokens", OPENAI | IN_SAMPLING, USED, NULL, "before so many no end token is chosen"},
    {"min_p", OPENAI | IN_SAMPLING, USED, NULL, "[0, 1]"},
    {"min_p", IN_OLLAMA_OPTIONS, USED, NULL, "[0, 1]"},
    {"min_tokens", OPENAI | IN_SAMPLING, USED, NULL, "as 'min_new_tokens'"},
    {"mirostat", OPENAI, REFUSED, "0", "'top_p' and 'min_p' cut the tail"},
    {"mirostat", IN_OLLAMA_OPTIONS, REFUSED, "0", "'top_p' and 'min_p' cut the tail"},
    {"mirostat_eta", OPENAI, HARMLESS, NULL, "only with 'mirostat'"},
    {"mirostat_eta", IN_OLLAMA_OPTIONS, HARMLESS, NULL, "only with 'mirostat'"},
    {"mirostat_tau", OPENAI, HARMLESS, NULL, "only with 'mirostat'"},
    {"mirostat_tau", IN_OLLAMA_OPTIONS, HARMLESS, NULL, "only with 'mirostat'"},
    {"mm_processor_kwargs", OPENAI, REFUSED, "{}", "this server reads text"},
    {"modalities", IN_CHAT | IN_GENERATE, REFUSED, "[\"text\"] []", "this server reads text"},
    {"model", OPENAI | IN_GENERATE | IN_TOKENIZE | IN_DETOKENIZE | IN_PIN | IN_EMBEDDINGS, USED, NULL, "one of the served names; may be left out"},
    {"model", IN_MESSAGES, USED, NULL, "one of the served names; may be left out"},
    {"model", IN_RESPONSES, USED, NULL, "one of the served names; may be left out"},
    {"model", OLLAMA | OL_EMBED, USED, NULL, "one of the served names, with :latest or without; may be left out"},
    {"n", OPENAI | IN_SAMPLING, USED, NULL, "answers to each prompt"},
    {"n_predict", OPENAI, REFUSED, NULL, "its name here is 'max_tokens'"},
    {"n_probs", OPENAI, REFUSED, "0", "its name here is 'logprobs'"},
    {"name", IN_MESSAGE, USED, NULL, "reaches the chat template"},
    {"name", IN_BLOCK, USED, NULL, "of a tool_use, or of the tool of a tool_addition or tool_removal"},
    {"name", IN_MESSAGES_TOOL, USED, NULL, "reaches the chat template"},
    {"name", IN_RESPONSES_TOOL, USED, NULL, "reaches the chat template"},
    {"no_logs", OPENAI | IN_GENERATE, HARMLESS, NULL, "texts are never logged"},
    {"no_stop_trim", OPENAI | IN_SAMPLING, USED, NULL, "the stop string stays in the text"},
    {"normalize", IN_EMBEDDINGS, REFUSED, "true", "embeddings have length 1"},
    {"num_batch", IN_OLLAMA_OPTIONS, HARMLESS, NULL, "the server's own options say how it computes"},
    {"num_ctx", IN_OLLAMA_OPTIONS, HARMLESS, NULL, "--context-length of the server says it"},
    {"num_gpu", IN_OLLAMA_OPTIONS, HARMLESS, NULL, "the server's own options say how it computes"},
    {"num_keep", IN_OLLAMA_OPTIONS, HARMLESS, NULL, "no context is shifted here"},
    {"num_predict", IN_OLLAMA_OPTIONS, USED, NULL, "most tokens of the answer; as many as the context has room for"},
    {"num_thread", IN_OLLAMA_OPTIONS, HARMLESS, NULL, "the server's own options say how it computes"},
    {"numa", IN_OLLAMA_OPTIONS, HARMLESS, NULL, "the server's own options say how it computes"},
    {"nvext", OPENAI, REFUSED, "{}", "of another server"},
    {"offset", IN_SESSION_PARAMS, USED, NULL, "so many tokens of the history are kept; below zero, all but so many"},
    {"options", OLLAMA, USED, NULL, "see its fields"},
    {"options", OL_EMBED, USED, NULL, "see its fields; none of them changes an embedding"},
    {"output_config", IN_MESSAGES, USED, NULL, "its effort"},
    {"output_format", IN_MESSAGES, USED, NULL, "as format of output_config"},
    {"parallel_tool_calls", IN_CHAT, USED, NULL, "false: the answer ends with its first call"},
    {"parallel_tool_calls", IN_RESPONSES, USED, NULL, "false: the answer ends with its first call"},
    {"parameters", IN_RESPONSES_TOOL, USED, NULL, "reaches the chat template"},
    {"partial", IN_MESSAGE, REFUSED, "false", "/v1/completions goes on behind any text"},
    {"penalize_newline", IN_OLLAMA_OPTIONS, REFUSED, "true", "penalties count all tokens"},
    {"penalty_alpha", OPENAI, REFUSED, "0", "of contrastive search, which there is none of"},
    {"prediction", OPENAI | IN_GENERATE, USED, NULL, "{\"type\": \"content\", \"content\": a string or text parts}: what the answer will likely say; it is faster where that is right, and the same in any case"},
    {"prefix", IN_MESSAGE, REFUSED, "false", "/v1/completions goes on behind any text"},
    {"presence_penalty", OPENAI | IN_SAMPLING, USED, NULL, "[-2, 2]"},
    {"presence_penalty", IN_OLLAMA_OPTIONS, USED, NULL, "[-2, 2]"},
    {"previous_response_id", IN_RESPONSES, USED, NULL, "an answer that was stored: its items go before 'input'"},
    {"priority", OPENAI | IN_GENERATE, USED, NULL, "order of waiting and of eviction"},
    {"priority", IN_MESSAGES, USED, NULL, "order of waiting and of eviction"},
    {"priority", IN_RESPONSES, USED, NULL, "order of waiting and of eviction"},
    {"priority", EMBED, USED, NULL, "order of waiting and of eviction"},
    {"priority", OLLAMA, USED, NULL, "order of waiting and of eviction"},
    {"prompt", IN_COMPLETIONS, USED, NULL, "a text, token ids, or a list of either"},
    {"prompt", IN_TOKENIZE, USED, NULL, "a text, or a list of them"},
    {"prompt", IN_RESPONSES, REFUSED, NULL, "this server keeps no prompts"},
    {"prompt", IN_OLLAMA_EMBEDDINGS, USED, NULL, "a text"},
    {"prompt", IN_OLLAMA_GENERATE, USED, NULL, "a text; without one the answer is that the model is there"},
    {"prompt_cache_key", OPENAI, USED, NULL, "any string: the prompt is pinned for 5 minutes, as far as --max-pinned-tokens goes"},
    {"prompt_cache_key", IN_RESPONSES, USED, NULL, "any string: the prompt is pinned for 5 minutes, as far as --max-pinned-tokens goes"},
    {"prompt_cache_retention", OPENAI, USED, NULL, "24h: so long, with 'prompt_cache_key'"},
    {"prompt_cache_retention", IN_RESPONSES, USED, NULL, "24h: so long, with 'prompt_cache_key'"},
    {"prompt_embeds", OPENAI, REFUSED, "[]", "give text or token ids"},
    {"prompt_logprobs", OPENAI, USED, NULL, "as vLLM tells them: the prompt's tokens, each with so many alternatives; not in a stream"},
    {"raw", IN_OLLAMA_GENERATE, USED, NULL, "the prompt is no message but the text itself"},
    {"reasoning", OPENAI, REFUSED, NULL, "give it in 'chat_template_kwargs', to a template that reads it"},
    {"reasoning", IN_MESSAGE, USED, NULL, "reaches the chat template"},
    {"reasoning", IN_RESPONSES, USED, NULL, "its effort"},
    {"reasoning_content", IN_MESSAGE, USED, NULL, "reaches the chat template"},
    {"reasoning_effort", IN_COMPLETIONS, REFUSED, NULL, "reasoning is for /v1/chat/completions"},
    {"reasoning_effort", IN_CHAT, USED, NULL,
     "goes to a chat template that reads it; none: enable_thinking and thinking are false there"},
    {"refusal", IN_MESSAGE, HARMLESS, NULL, "of an earlier answer; reaches the chat template"},
    {"regex", OPENAI | IN_SAMPLING, USED, NULL, "the answer is a text that the expression matches as a whole"},
    {"regex", IN_STRUCTURED_OUTPUTS, USED, NULL, "as regex"},
    {"repeat_last_n", OPENAI, REFUSED, "-1", "penalties count the whole answer"},
    {"repeat_last_n", IN_OLLAMA_OPTIONS, REFUSED, "-1", "penalties count the whole answer"},
    {"repeat_penalty", OPENAI, REFUSED, "1", "its name here is 'repetition_penalty'"},
    {"repeat_penalty", IN_OLLAMA_OPTIONS, USED, NULL, "(0, 2]"},
    {"repetition_penalty", OPENAI | IN_SAMPLING, USED, NULL, "(0, 2]"},
    {"replace", IN_SESSION_PARAMS, USED, NULL, "true: that request is ended, and what went on from it removed; all of the session without a rid"},
    {"request_id", OPENAI | IN_EMBEDDINGS, HARMLESS, NULL, "send the header X-Request-Id"},
    {"response_format", OPENAI, USED, NULL, "text, json_object or json_schema: the answer follows it"},
    {"return_cached_tokens_details", OPENAI | IN_GENERATE, HARMLESS, NULL, "they are always there with tiers"},
    {"return_hidden_states", OPENAI | IN_GENERATE, REFUSED, "false", "/v1/embeddings has the last one, or their mean"},
    {"return_logprob", IN_GENERATE, USED, NULL, "logprobs of the output, and of the prompt where 'logprob_start_len' is not -1"},
    {"return_prompt_token_ids", OPENAI | IN_GENERATE, REFUSED, "false", "/tokenize tells them"},
    {"return_routed_experts", OPENAI | IN_GENERATE, REFUSED, "false", "which experts were used is not told"},
    {"return_text_in_logprobs", IN_GENERATE, USED, NULL, "the tokens' texts beside their ids"},
    {"return_token_ids", OPENAI, USED, NULL, "choices[].token_ids"},
    {"return_token_strs", IN_TOKENIZE, USED, NULL, "the tokens' texts beside their ids"},
    {"return_tokens_as_token_ids", OPENAI, REFUSED, "false", "use 'return_token_ids'"},
    {"rid", OPENAI | IN_EMBEDDINGS, HARMLESS, NULL, "there is nothing that could be asked for by it"},
    {"rid", IN_GENERATE, USED, NULL, "the answer's meta_info.id; one for all prompts"},
    {"rid", IN_ABORT, USED, NULL, "the request's name: its rid, or the id in its answer"},
    {"rid", IN_SESSION_PARAMS, USED, NULL, "the request of the session that this one goes on from, by the id in its answer"},
    {"role", IN_MESSAGE, USED, NULL, "the template's business; developer is read as system"},
    {"routed_dp_rank", OPENAI | IN_GENERATE, HARMLESS, NULL, "there is one rank"},
    {"safety_identifier", OPENAI, HARMLESS, NULL, "nothing depends on who asks"},
    {"safety_identifier", IN_RESPONSES, HARMLESS, NULL, "nothing depends on who asks"},
    {"samplers", OPENAI, REFUSED, NULL, "their order is fixed: temperature, top_k, top_p, min_p"},
    {"sampling_params", IN_GENERATE, USED, NULL, "an object, or one for each prompt"},
    {"sampling_seed", OPENAI | IN_SAMPLING, USED, NULL, "as 'seed'"},
    {"schema", IN_RESPONSE_FORMAT, USED, NULL, "of llama.cpp: with json_object or json_schema"},
    {"seed", OPENAI | IN_SAMPLING, USED, NULL, "repeats an answer"},
    {"seed", IN_OLLAMA_OPTIONS, USED, NULL, "repeats an answer"},
    {"separate_reasoning", IN_COMPLETIONS, HARMLESS, NULL, "the answer is the model's whole text"},
    {"separate_reasoning", IN_CHAT, USED, NULL, "false: reasoning stays in the content"},
    {"service_tier", OPENAI, HARMLESS, NULL, "there is one"},
    {"service_tier", IN_MESSAGES, HARMLESS, NULL, "there is one"},
    {"service_tier", IN_RESPONSES, HARMLESS, NULL, "there is one"},
    {"session_id", OPENAI | IN_GENERATE, HARMLESS, NULL, "an identity; nothing depends on it"},
    {"session_id", IN_OPEN_SESSION, USED, NULL, "what the session is to be called; one is made up"},
    {"session_id", IN_CLOSE_SESSION, USED, NULL, "of /open_session"},
    {"session_params", OPENAI | IN_GENERATE, USED, NULL, "a turn of a session, see its fields and docs/agents.md"},
    {"signature", IN_BLOCK, HARMLESS, NULL, "nobody here signs thoughts"},
    {"skip_special_tokens", OPENAI | IN_SAMPLING, USED, NULL, "false: control tokens stay in the text"},
    {"skip_special_tokens", IN_DETOKENIZE, USED, NULL, "false: control tokens stay in the text; true"},
    {"spaces_between_special_tokens", OPENAI | IN_SAMPLING, HARMLESS, NULL,
     "control tokens are written without spaces, as fast tokenizers do"},
    {"speed", IN_MESSAGES, HARMLESS, NULL, "there is one"},
    {"stop", OPENAI | IN_SAMPLING, USED, NULL, "strings that end the answer"},
    {"stop", IN_OLLAMA_OPTIONS, USED, NULL, "strings that end the answer"},
    {"stop_regex", OPENAI | IN_SAMPLING, REFUSED, "\"\" []", "'stop' takes strings"},
    {"stop_sequences", IN_MESSAGES, USED, NULL, "strings that end the answer"},
    {"stop_token_ids", OPENAI | IN_SAMPLING, USED, NULL, "tokens that end the answer"},
    {"store", OPENAI, HARMLESS, NULL, "answers are not kept"},
    {"store", IN_RESPONSES, USED, NULL, "false: the answer is not kept; true, for an hour at most"},
    {"stream", OPENAI | IN_GENERATE, USED, NULL, "server-sent events"},
    {"stream", IN_MESSAGES, USED, NULL, "server-sent events"},
    {"stream", IN_RESPONSES, USED, NULL, "server-sent events"},
    {"stream", OLLAMA, USED, NULL, "lines of JSON; true"},
    {"stream_options", OPENAI, USED, NULL, "see its fields"},
    {"stream_options", IN_RESPONSES, HARMLESS, NULL, "there is no padding in a stream"},
    {"stream_reasoning", OPENAI, HARMLESS, NULL, "reasoning comes in pieces, as the rest of a stream does"},
    {"streaming", IN_OPEN_SESSION, USED, NULL, "true: turns only append, and all K and V are kept between them (--enable-streaming-session)"},
    {"strict", IN_MESSAGES_TOOL, USED, NULL, "true: its arguments follow the schema, or the request is refused"},
    {"strict", IN_RESPONSES_TOOL, USED, NULL, "true: its arguments follow the schema, or the request is refused"},
    {"structural_tag", OPENAI | IN_SAMPLING, REFUSED, "\"\" false {} []", "'ebnf' says it"},
    {"structural_tag", IN_STRUCTURED_OUTPUTS, REFUSED, NULL, "'grammar' says it"},
    {"structured_outputs", OPENAI | IN_SAMPLING, USED, NULL, "what the answer must look like, by one of its fields"},
    {"suffix", IN_COMPLETIONS, REFUSED, "\"\"", "nothing is filled in between; models trained for it have tokens that 'prompt' may spell"},
    {"suffix", IN_OLLAMA_GENERATE, REFUSED, "\"\"", "nothing is filled in between; models trained for it have tokens that 'prompt' may spell"},
    {"summary", IN_REASONING, HARMLESS, NULL, "reasoning is told whole"},
    {"system", IN_MESSAGES, USED, NULL, "a string or text blocks; one that begins with x-anthropic-billing-header: is left out"},
    {"system", IN_OLLAMA_GENERATE, USED, NULL, "the system message"},
    {"temperature", OPENAI | IN_SAMPLING, USED, NULL, "0: the likeliest token"},
    {"temperature", IN_MESSAGES, USED, NULL, "0: the likeliest token"},
    {"temperature", IN_RESPONSES, USED, NULL, "0: the likeliest token"},
    {"temperature", IN_OLLAMA_OPTIONS, USED, NULL, "0: the likeliest token"},
    {"template", IN_OLLAMA_GENERATE, REFUSED, "\"\"", "--chat-template of the server names it"},
    {"text", IN_GENERATE, USED, NULL, "the prompt, or a list of them"},
    {"text", IN_PIN, USED, NULL, "the prefix, as the prompt of a request"},
    {"text", IN_PART, USED, NULL, "the words"},
    {"text", IN_BLOCK, USED, NULL, "the words"},
    {"text", IN_RESPONSES, USED, NULL, "its format must be text"},
    {"tfs_z", OPENAI, REFUSED, "1", "'top_p' and 'min_p' cut the tail"},
    {"tfs_z", IN_OLLAMA_OPTIONS, REFUSED, "1", "'top_p' and 'min_p' cut the tail"},
    {"think", OLLAMA, USED, NULL, "true, false or how much, where the template reads it"},
    {"thinking", OPENAI, REFUSED, NULL, "give it in 'chat_template_kwargs', to a template that reads it"},
    {"thinking", IN_MESSAGES, USED, NULL, "enabled or disabled, where the template reads it; budget_tokens are not counted"},
    {"thinking", IN_BLOCK, USED, NULL, "of an earlier answer; reaches the chat template as reasoning_content"},
    {"thinking_budget", OPENAI, REFUSED, NULL, "give it in 'chat_template_kwargs', to a template that reads it"},
    {"timeout", IN_OPEN_SESSION, USED, NULL, "seconds until an idle session ends; --session-timeout"},
    {"token_ids", IN_PIN, USED, NULL, "the prefix, as token ids"},
    {"token_ids_logprob", IN_GENERATE, USED, NULL, "ids whose logprobs are told at each token; at most 1024"},
    {"tokens", IN_DETOKENIZE, USED, NULL, "ids, or a list of lists of them"},
    {"tool", IN_BLOCK, USED, NULL, "of a tool_addition or tool_removal"},
    {"tool_call_id", IN_MESSAGE, USED, NULL,
     "reaches the chat template; names the function of a result that has no 'name'"},
    {"tool_calls", IN_MESSAGE, USED, NULL, "go to the chat template, which must read them"},
    {"tool_choice", IN_COMPLETIONS, REFUSED, "\"auto\" \"none\"", "tools are for /v1/chat/completions"},
    {"tool_choice", IN_CHAT, USED, NULL,
     "auto, none: the template does not hear of the tools, required, or a function by its name"},
    {"tool_choice", IN_MESSAGES, USED, NULL, "auto, none, any (a call must come) or tool (of this function)"},
    {"tool_choice", IN_RESPONSES, USED, NULL, "auto, none, required, or a function by its name"},
    {"tool_name", IN_BLOCK, USED, NULL, "of a tool_reference"},
    {"tool_use_id", IN_BLOCK, USED, NULL, "of a tool_result"},
    {"tools", IN_COMPLETIONS, REFUSED, "[]", "tools are for /v1/chat/completions"},
    {"tools", IN_CHAT | IN_TOKENIZE | IN_PIN, USED, NULL, "go to the chat template, which must read them"},
    {"tools", IN_MESSAGES, USED, NULL, "go to the chat template, which must read them"},
    {"tools", IN_RESPONSES, USED, NULL, "of type function, custom or namespace; go to the chat template, which must read them"},
    {"tools", IN_RESPONSES_TOOL, USED, NULL, "of a namespace: functions"},
    {"tools", IN_OLLAMA_CHAT, USED, NULL, "go to the chat template, which must read them"},
    {"top_a", OPENAI, REFUSED, "0", "'top_p' and 'min_p' cut the tail"},
    {"top_k", OPENAI | IN_SAMPLING, USED, NULL, "-1 or 0: all"},
    {"top_k", IN_MESSAGES, USED, NULL, "-1 or 0: all"},
    {"top_k", IN_OLLAMA_OPTIONS, USED, NULL, "0: all"},
    {"top_logprobs", IN_COMPLETIONS, REFUSED, "0", "give the number as 'logprobs'"},
    {"top_logprobs", IN_CHAT, USED, NULL, "a number of alternatives"},
    {"top_logprobs", IN_RESPONSES, REFUSED, "0", "logprobs are told by /v1/chat/completions"},
    {"top_logprobs", OLLAMA, REFUSED, "0", "logprobs are told by /v1/chat/completions"},
    {"top_logprobs_num", IN_GENERATE, USED, NULL, "a number of alternatives"},
    {"top_n_sigma", OPENAI, REFUSED, "-1 0", "'top_p' and 'min_p' cut the tail"},
    {"top_p", OPENAI | IN_SAMPLING, USED, NULL, "(0, 1]"},
    {"top_p", IN_MESSAGES, USED, NULL, "(0, 1]"},
    {"top_p", IN_RESPONSES, USED, NULL, "(0, 1]"},
    {"top_p", IN_OLLAMA_OPTIONS, USED, NULL, "(0, 1]"},
    {"truncate", OL_EMBED, USED, NULL, "true or false: a text that does not fit is refused in any case"},
    {"truncate_prompt_tokens", OPENAI | IN_SAMPLING | IN_EMBEDDINGS, REFUSED, NULL, "half a prompt has another meaning; /tokenize counts it"},
    {"truncation", OPENAI, REFUSED, "\"disabled\"", "a prompt that does not fit is refused"},
    {"truncation", IN_RESPONSES, REFUSED, "\"disabled\"", "a prompt that does not fit is refused"},
    {"ttl_seconds", IN_PIN, USED, NULL, "for how long, 300; 0: it is pinned no longer"},
    {"type", IN_RESPONSE_FORMAT, USED, NULL, "text, json_object or json_schema"},
    {"type", IN_PART, USED, NULL, "text"},
    {"type", IN_BLOCK, USED, NULL, "text, tool_use, tool_result, thinking; redacted_thinking is left out. In a tool_result also tool_reference, in a system message tool_addition and tool_removal"},
    {"type", IN_MESSAGES_TOOL, USED, NULL, "custom; tools of Anthropic's servers are refused by name"},
    {"type", IN_RESPONSES_TOOL, USED, NULL, "function; custom: a function with one argument, input; namespace: its functions, which the model knows as NAMESPACE__NAME; others are refused by name"},
    {"typical_p", OPENAI, REFUSED, "1", "'top_p' and 'min_p' cut the tail"},
    {"typical_p", IN_OLLAMA_OPTIONS, REFUSED, "1", "'top_p' and 'min_p' cut the tail"},
    {"use_beam_search", OPENAI | IN_SAMPLING, REFUSED, "false", "'best_of' takes the likeliest of several answers"},
    {"use_mlock", IN_OLLAMA_OPTIONS, HARMLESS, NULL, "the server's own options say how it computes"},
    {"use_mmap", IN_OLLAMA_OPTIONS, HARMLESS, NULL, "the server's own options say how it computes"},
    {"user", OPENAI | IN_EMBEDDINGS, USED, NULL, "a string; nothing depends on it"},
    {"user", IN_RESPONSES, USED, NULL, "a string; nothing depends on it"},
    {"verbosity", OPENAI, REFUSED, NULL, "give it in 'chat_template_kwargs', to a template that reads it"},
    {"verbosity", IN_RESPONSES_TEXT, REFUSED, "\"medium\"", "how long answers are is said in the instructions"},
    {"video_data", OPENAI | IN_GENERATE, REFUSED, "[] \"\"", "this server reads text"},
    {"vllm_xargs", OPENAI, REFUSED, "{}", "of another server"},
    {"vocab_only", IN_OLLAMA_OPTIONS, HARMLESS, NULL, "the server's own options say how it computes"},
    {"web_search_options", IN_CHAT, REFUSED, "{}", "this server searches nothing"},
    {"whitespace_pattern", IN_STRUCTURED_OUTPUTS, REFUSED, "\"\"", "white space is one blank behind each comma and colon"},
    {"xtc_probability", OPENAI, REFUSED, "0", "'top_p' and 'min_p' cut the tail"},
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
        "/tokenize",       "/detokenize",          "/v1/messages",
        "a content block", "tools[] of /v1/messages", "output_config",
        "/v1/responses",   "tools[] of /v1/responses", "text of /v1/responses",
        "reasoning of /v1/responses", "/api/chat", "/api/generate", "options",
        "/abort_request", "session_params", "/open_session", "/close_session",
        "/pin_prefix", "/v1/embeddings", "/api/embed", "/api/embeddings", "structured_outputs"};
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
    return api_fail(err, 400, f->name, "'%s' is not supported%s%s%s: %s", f->name,
                    f->neutral ? " (other than " : "", f->neutral ? f->neutral : "",
                    f->neutral ? ")" : "", f->words);
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
