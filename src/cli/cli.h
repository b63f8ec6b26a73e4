/* cli.h - the commands of the program and what they share. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "base/base.h"
#include "cli/options.h"
#include "engine/engine.h"

#include <jansson.h>
#include <radish/radish.h>

#define RADISH_VERSION RAD_VERSION_STRING

/* What K and V may be stored as. */
#define CLI_KV_TYPES "auto, f32, bf16, f16, fp8_e4m3, fp8_e5m2 or int8"

/* Drafts of serve and bench, where nobody says otherwise. */
#define CLI_DRAFT_SOURCES "prediction,tree,ngram,recent,nextn"
#define CLI_DRAFT_TOKENS  32
#define CLI_RECENT_TOKENS 524288

/* A default as --help says it. */
#define NUMBER_(x) #x
#define NUMBER(x)  NUMBER_(x)

int cmd_serve(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_logits(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_inspect_store(int argc, char **argv);
int cmd_inspect_cache(int argc, char **argv);
int cmd_render(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_health(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_completion(int argc, char **argv);
int cmd_man(int argc, char **argv);
int cmd_version(int argc, char **argv);

typedef struct cli_command {
    const char *name, *about;
    int (*run)(int argc, char **argv);
} cli_command;

/* Of the program, and of radish inspect; the last has no name. */
extern const cli_command cli_commands[], cli_inspect_subjects[];

/* "radish: words" on stderr; returns the exit code 1 (or 2: a mistake in the usage). */
int cli_fail(const char *fmt, ...) RAD_PRINTF(1, 2);
int cli_usage(const char *command, const char *fmt, ...) RAD_PRINTF(2, 3);

/* The model and machine options that every command has. */
typedef struct model_options {
    const char *model;  /* also the positional word */
    const char *dtype;  /* NULL = auto */
    const char *device; /* NULL = auto, of commands that compute */
    const char *log_level;
    uint32_t threads;
    rad_dtype parsed_dtype;
    weights_policy parsed_weights;
    rad_log_level parsed_log_level;
    bool dtype_auto; /* nobody asked for one */
    bool log_times;  /* each line begins with the time */
    bool log_json;  /* each line is a JSON object */
} model_options;

#define DEVICE_OPTION(o)                                                                           \
    {                                                                                              \
        .kind = CLI_TEXT, .name = "device", .arg = "auto|cpu|cuda[:N]", .target = &(o)->device,    \
        .help = "Where it computes: on the CPU, or on the NVIDIA GPU number N (0). auto, the\n"    \
                "default: on GPU 0 where there is one that can compute this model and has room\n"  \
                "for it, else on the CPU; what is said at the start tells why. cuda: there or\n"   \
                "not at all."                                                                      \
    }

#define MODEL_OPTIONS(o)                                                                           \
    {.kind = CLI_HEADING, .help = "Model and machine:"},                                           \
        {.kind = CLI_TEXT,                                                                         \
         .letter = 'm',                                                                            \
         .name = "model-path",                                                                     \
         .arg = "FILE",                                                                            \
         .target = &(o)->model,                                                                    \
         .help = "The model, a GGUF file. May also stand without -m."},                            \
        {.kind = CLI_TEXT,                                                                         \
         .name = "dtype",                                                                          \
         .arg = "auto|f32|bf16|q8_0",                                                              \
         .target = &(o)->dtype,                                                                    \
         .help = "Type of weights and KV cache. auto, the default: quantised weights stay as in\n" \
                 "the file; others, and the KV cache, are bf16 where the CPU computes with it\n"   \
                 "(AVX512_BF16), else f32. f32, bf16: all of it. q8_0: all matrices, rounded\n"    \
                 "from what the file has; the KV cache as with auto. On a GPU what is neither\n"   \
                 "quantised nor fp8 is bf16, and f32 is refused."},                                \
        {.kind = CLI_U32,                                                                          \
         .name = "threads",                                                                        \
         .arg = "N",                                                                               \
         .target = &(o)->threads,                                                                  \
         .max = 256,                                                                               \
         .help = "Threads that compute. Default: one per CPU that this process may use, by its\n"  \
                 "affinity and its container's or service's quota; 0 = default."},                 \
    {                                                                                              \
        .kind = CLI_TEXT, .name = "log-level", .arg = "LEVEL", .target = &(o)->log_level,          \
        .help = "error, warn, info or debug, on stderr. Default: warn."                            \
    }

/* Checks and fills the parsed ones; `positional` may name the model. CLI_GO_ON, or 2. */
int model_options_check(const char *command, model_options *o, const char *positional);

/* A help text made of other texts, in lines as the other options' are. */
const char *cli_wrap(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "lru (default), lfu, ... or cost": what can be named. */
const char *cli_eviction_names(char *text, size_t size);

/* --radix-eviction-policy (NULL: lru) and --radix-eviction-policy-config (a JSON object, or
 * NULL) into options. CLI_GO_ON, or 2 after a line on stderr: no such policy, no such key,
 * a key of another policy. */
int cli_eviction(const char *command, const char *policy, const char *config,
                 rad_eviction_options *out);

/* A line of a log that programs read: {"time", "level", "message"} and what is in `more` (taken; NULL:
 * nothing). */
void cli_log_json(rad_log_level level, const char *message, json_t *more);

/* An env whose log goes to stderr from this level on; lives as long as `o`. */
rad_env cli_env(model_options *o);

/* Sampling options of generate and chat; default_n is max_new_tokens as text. */
typedef struct sampling_options {
    sampling_params params;
    bool has_seed;
    cli_list stop;
    bool ignore_eos;
    int64_t max_new_tokens;
} sampling_options;

#define SAMPLING_OPTIONS(o, default_n)                                                             \
    {.kind = CLI_HEADING, .help = "Generation:"},                                                  \
        {.kind = CLI_I64,                                                                          \
         .letter = 'n',                                                                            \
         .name = "max-new-tokens",                                                                 \
         .arg = "N",                                                                               \
         .target = &(o)->max_new_tokens,                                                           \
         .min = -1,                                                                                \
         .max = 1e9,                                                                               \
         .help = "How many tokens at most; -1 = until the context is full. Default " default_n     \
                 "."},                                                                             \
        {.kind = CLI_F32,                                                                          \
         .letter = 't',                                                                            \
         .name = "temp",                                                                           \
         .arg = "T",                                                                               \
         .target = &(o)->params.temperature,                                                       \
         .max = 100,                                                                               \
         .help = "Temperature. Default 0: greedy, the same answer every time."},                   \
        {.kind = CLI_F32,                                                                          \
         .name = "top-p",                                                                          \
         .arg = "P",                                                                               \
         .target = &(o)->params.top_p,                                                             \
         .max = 1,                                                                                 \
         .help = "Keep the likeliest tokens that add up to P. Default 1: all."},                   \
        {.kind = CLI_I32,                                                                          \
         .name = "top-k",                                                                          \
         .arg = "K",                                                                               \
         .target = &(o)->params.top_k,                                                             \
         .min = -1,                                                                                \
         .max = INT32_MAX,                                                                         \
         .help = "Keep the K likeliest tokens. Default 0: all."},                                  \
        {.kind = CLI_F32,                                                                          \
         .name = "min-p",                                                                          \
         .arg = "P",                                                                               \
         .target = &(o)->params.min_p,                                                             \
         .max = 1,                                                                                 \
         .help = "Keep tokens at least P times as likely as the likeliest. Default 0: all."},      \
        {.kind = CLI_F32,                                                                          \
         .name = "repetition-penalty",                                                             \
         .arg = "P",                                                                               \
         .target = &(o)->params.repetition_penalty,                                                \
         .max = 2,                                                                                 \
         .help = "Divide the logits of tokens said before by P. Default 0: off."},                 \
        {.kind = CLI_F32,                                                                          \
         .name = "presence-penalty",                                                               \
         .arg = "P",                                                                               \
         .target = &(o)->params.presence_penalty,                                                  \
         .min = -2,                                                                                \
         .max = 2,                                                                                 \
         .help = "Subtract P from the logits of tokens said before. Default 0."},                  \
        {.kind = CLI_F32,                                                                          \
         .name = "frequency-penalty",                                                              \
         .arg = "P",                                                                               \
         .target = &(o)->params.frequency_penalty,                                                 \
         .min = -2,                                                                                \
         .max = 2,                                                                                 \
         .help = "The same for each time they were said. Default 0."},                             \
        {.kind = CLI_U64,                                                                          \
         .name = "seed",                                                                           \
         .arg = "N",                                                                               \
         .target = &(o)->params.seed,                                                              \
         .given = &(o)->has_seed,                                                                  \
         .help = "Makes sampling repeatable. Default: from the clock."},                           \
        {.kind = CLI_LIST,                                                                         \
         .name = "stop",                                                                           \
         .arg = "TEXT",                                                                            \
         .target = &(o)->stop,                                                                     \
         .help = "End when this text appears; may be given more than once."},                      \
    {                                                                                              \
        .kind = CLI_FLAG, .name = "ignore-eos", .target = &(o)->ignore_eos,                        \
        .help = "Go on after the model's end token."                                               \
    }

void sampling_options_apply(const sampling_options *o, engine_request *request);

/* An engine for one conversation in this process: a pool of the context's size, or of
 * 32,768 tokens where the model's context is longer and none was asked for. Shows a progress
 * bar on a terminal. NULL after saying why on stderr. */
engine *cli_engine_for_one(const rad_env *env, const model_options *o, uint32_t context_length,
                           uint32_t page_size, const char *template_name, uint64_t pool_contexts);

/* engine_params.progress: a bar on stderr when that is a terminal; `user` is the model's path. */
void cli_progress(void *user, uint64_t done, uint64_t total);

/* "1,5,9" -> ids, to be freed. -1 for anything else than numbers and commas. */
int cli_parse_ids(const char *text, rad_token **ids, uint32_t *count);

/* The whole file, "-" = stdin; freed by the caller. NULL after saying why on stderr. */
char *cli_read_file(const char *path, size_t *len);

/* JSON string in quotes, bytes that are not UTF-8 replaced. */
void cli_print_json_text(const char *text, size_t len);

#endif
