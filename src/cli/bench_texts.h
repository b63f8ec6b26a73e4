/* bench_texts.h - what answers say whose drafts are measured (bench_drafts.c).
 *
 * How often a guess is right is a matter of the text, and what a model with random weights says is
 * none. So the texts are told: a file that comes back with edits, calls of tools in the form that
 * their schema asks for, and prose as assistants write it, each another one by its seed. */
#ifndef CLI_BENCH_TEXTS_H
#define CLI_BENCH_TEXTS_H

#include "text/detokenize.h"

/* A file of C with so many functions; with edits, an identifier of each function is another one,
 * and in some a line is new or gone. RAD_E_NOMEM, as below. */
rad_status bench_text_file(text_buf *out, uint64_t seed, uint32_t functions, bool edited);

/* So many calls as one JSON value, and the schema that it follows. */
rad_status bench_text_calls(text_buf *out, uint64_t seed, uint32_t calls);
const char *bench_text_calls_schema(void);

/* An answer to a question: some hundred words. */
rad_status bench_text_talk(text_buf *out, uint64_t seed);
const char *bench_text_question(uint64_t seed);

#endif
