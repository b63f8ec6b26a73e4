/* api_forms.h - what a request says that its answer must look like.
 *
 * Every dialect has words of its own for the same: a JSON Schema, any JSON object, a regular
 * expression, a grammar, a choice of texts. They end as one engine_form. A request has one at
 * most. What a form means, and what of it is not served, is grammar/grammar.h's to say, when it is
 * compiled. */
#ifndef SERVER_API_FORMS_H
#define SERVER_API_FORMS_H

#include "server/api_request.h"

/* OpenAI's {"type": "json_schema", ...} of response_format, and of text.format, where the schema
 * stands beside the type; `name` is that. NULL and "text" ask for nothing. */
bool api_parse_format(api_request *r, const json_t *format, const char *name, engine_request *item,
                      api_error *err);

/* A schema, or the word "json": Ollama's format. NULL and "" ask for nothing. */
bool api_parse_ollama_format(api_request *r, const json_t *format, engine_request *item,
                             api_error *err);

/* What stands beside the sampling parameters: json_schema, regex and ebnf of SGLang, guided_... and
 * structured_outputs of vLLM, grammar of llama.cpp. */
bool api_parse_forms(api_request *r, const json_t *object, engine_request *item, api_error *err);

/* Which of these names words about a form begin with, in quotes: "'regex': ..." NULL: none. */
const char *api_form_named(const char *words);

#endif
