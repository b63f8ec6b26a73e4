/* common.c - what the commands share. */
#include "cli/cli.h"

#include "base/cpu.h"
#include "cli/flag_words.h"
#include "cli/terminal_text.h"
#include "engine/engine_device.h"
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int cli_fail(const char *fmt, ...)
{
    char words[2048]; /* they may quote a file */
    va_list args;
    va_start(args, fmt);
    vsnprintf(words, sizeof words, fmt, args);
    va_end(args);
    flag_words_put(words, sizeof words);
    fputs("radish: ", stderr);
    terminal_text_write(stderr, words, strlen(words));
    fputc('\n', stderr);
    return 1;
}

int cli_usage(const char *command, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "radish %s: ", command);
    vfprintf(stderr, fmt, args);
    fprintf(stderr, " (radish %s --help is the manual)\n", command);
    va_end(args);
    return 2;
}

/* bf16 products in hardware. Without them x stays f32, and a file's bf16 is widened. */
static bool cpu_has_bf16(void)
{
    return cpu_has(CPU_AVX512BF16);
}

int model_options_check(const char *command, model_options *o, const char *positional)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    if (o->model && positional)
        return cli_usage(command, "two models: '%s' and '%s'", o->model, positional);
    if (positional) o->model = positional;
    if (!o->model) return cli_usage(command, "which model? -m FILE");
    const char *dtype = o->dtype ? o->dtype : "auto";
    o->parsed_dtype = cpu_has_bf16() ? RAD_BF16 : RAD_F32;
    o->dtype_auto = !strcmp(dtype, "auto");
    if (!o->device) o->device = "auto";
    engine_device device;
    rad_error err = {0};
    if (engine_device_parse(o->device, &device, &err) != RAD_OK)
        return cli_usage(command, "--%s", err.text);
    if (o->dtype_auto)
        o->parsed_weights = WEIGHTS_AS_FILE;
    else if (!strcmp(dtype, "q8_0"))
        o->parsed_weights = WEIGHTS_AS_Q8_0;
    else if (!strcmp(dtype, "f32"))
        o->parsed_dtype = RAD_F32;
    else if (!strcmp(dtype, "bf16"))
        o->parsed_dtype = RAD_BF16;
    else
        return cli_usage(command, "--dtype is auto, f32, bf16 or q8_0, not '%s'", dtype);
    o->parsed_log_level = RAD_LOG_WARN;
    if (o->log_level) {
        size_t i = 0;
        while (i < RAD_COUNT(levels) && strcmp(levels[i], o->log_level) != 0)
            i++;
        if (i == RAD_COUNT(levels))
            return cli_usage(command, "--log-level is error, warn, info or debug");
        o->parsed_log_level = (rad_log_level)i;
    }
    return CLI_GO_ON;
}

static const char *const level_names[] = {"error", "warning", "info", "debug"};

/* "2026-11-23T15:04:05.678Z" */
static void log_time(char *when, size_t size)
{
    struct timespec now;
    struct tm utc;
    *when = 0;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0 || !gmtime_r(&now.tv_sec, &utc)) return;
    size_t n = strftime(when, size, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(when + n, size - n, ".%03ldZ", now.tv_nsec / 1000000);
}

void cli_log_json(rad_log_level level, const char *message, json_t *more)
{
    char when[40];
    log_time(when, sizeof when);
    json_t *line = json_pack("{s:s, s:s, s:s}", "time", when, "level", level_names[level], "message",
                             message);
    if (line && more) json_object_update(line, more);
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    if (text) fprintf(stderr, "%s\n", text); /* at once: threads' lines do not mix */
    free(text);
    json_decref(line);
    json_decref(more);
}

static void log_to_stderr(void *user, rad_log_level level, const char *said)
{
    const model_options *o = user;
    char when[40] = "", message[1280]; /* a line has 1,023 bytes */
    if (level > o->parsed_log_level) return;
    snprintf(message, sizeof message, "%s", said);
    flag_words_put(message, sizeof message);
    if (o->log_json) {
        cli_log_json(level, message, NULL);
        return;
    }
    if (o->log_times) log_time(when, sizeof when);
    fprintf(stderr, "%s%sradish: %s: %s\n", when, *when ? " " : "", level_names[level], message);
}

rad_env cli_env(model_options *o)
{
    return rad_env_or_default(
        &(rad_env){.struct_size = sizeof(rad_env), .user = o, .log = log_to_stderr});
}

void sampling_options_apply(const sampling_options *o, engine_request *request)
{
    request->sampling = o->params;
    request->has_seed = o->has_seed;
    request->ignore_eos = o->ignore_eos;
    request->max_new_tokens = o->max_new_tokens;
    request->stop = o->stop.texts;
    request->num_stop = o->stop.count;
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* From the second second on, lest small models flicker. */
void cli_progress(void *user, uint64_t done, uint64_t total)
{
    static double start;
    static int last = -1;
    if (!isatty(STDERR_FILENO) || !total) return;
    if (!start) start = seconds_now();
    double seconds = seconds_now() - start;
    int percent = (int)((double)done / (double)total * 100);
    if (percent == last || (seconds < 1 && last < 0)) return;
    last = percent;
    char bar[41];
    memset(bar, ' ', 40);
    memset(bar, '#', (size_t)RAD_MIN(percent, 100) * 40 / 100);
    bar[40] = 0;
    const char *path = user, *slash = strrchr(path, '/');
    fprintf(stderr, "\rloading %.40s [%s] %3d%% %5.0f MB/s", slash ? slash + 1 : path, bar, percent,
            (double)done / seconds * 1e-6);
    if (done >= total) fputs("\r\033[K", stderr); /* done: leave no trace */
}

/* The context a model was made for; 0 when the file does not say. Reads no tensor. */
static uint32_t model_context(const rad_env *env, const char *path)
{
    gguf_file *file = NULL;
    gguf_str arch;
    uint32_t context = 0;
    char key[128];
    if (gguf_open(env, path, &file, NULL) != RAD_OK) return 0; /* engine_create says why */
    if (gguf_get_str(file, "general.architecture", &arch, NULL) == RAD_OK && arch.len < 64) {
        snprintf(key, sizeof key, "%.*s.context_length", (int)arch.len, arch.data);
        if (gguf_get_u32(file, key, &context, NULL) != RAD_OK) context = 0;
    }
    gguf_close(file);
    return context;
}

engine *cli_engine_for_one(const rad_env *env, const model_options *o, uint32_t context_length,
                           uint32_t page_size, const char *template_name, uint64_t pool_contexts)
{
    enum { LONG = 32768 };
    uint32_t context = context_length;
    uint32_t page = page_size ? page_size : 1;
    if (!context) context = RAD_MIN(model_context(env, o->model), (uint32_t)LONG);
    uint64_t tokens = (context + UINT64_C(8)) * pool_contexts;
    engine_params params = {
        .model_path = o->model,
        .chat_template = template_name,
        .dtype = o->parsed_dtype,
        .dtype_by_device = o->dtype_auto,
        .device = o->device,
        .weights = o->parsed_weights,
        .num_threads = o->threads,
        .max_total_tokens = context ? (tokens + page - 1) / page * page : 0,
        .max_running_requests = 1,
        .page_size = page_size,
        .context_length = context,
        .progress = cli_progress,
        .progress_user = (void *)(uintptr_t)o->model,
    };
    engine *e = NULL;
    rad_error err = {0};
    if (engine_create(env, &params, &e, &err) != RAD_OK) {
        cli_fail("%s", err.text);
        return NULL;
    }
    return e;
}

int cli_parse_ids(const char *text, rad_token **ids, uint32_t *count)
{
    size_t n = 1;
    for (const char *c = text; *c; c++)
        n += *c == ',';
    *count = 0;
    *ids = malloc(n * sizeof **ids);
    if (!*ids) return -1;
    for (const char *at = text;;) {
        char *end;
        errno = 0;
        long value = strtol(at, &end, 10);
        while (*end == ' ')
            end++;
        if (end == at || errno || value < 0 || value > INT32_MAX || (*end && *end != ',')) {
            free(*ids);
            *ids = NULL;
            return -1;
        }
        (*ids)[(*count)++] = (rad_token)value;
        if (!*end) return 0;
        at = end + 1;
    }
}

char *cli_read_file(const char *path, size_t *len)
{
    bool in = strcmp(path, "-") == 0;
    FILE *f = in ? stdin : fopen(path, "rb");
    char *data = NULL;
    size_t cap = 0;
    *len = 0;
    if (!f) {
        cli_fail("cannot open '%s': %s", path, strerror(errno));
        return NULL;
    }
    do {
        if (*len == cap) {
            cap = cap ? cap * 2 : 1 << 16;
            char *more = realloc(data, cap);
            if (!more) {
                cli_fail("no memory for '%s'", path);
                free(data);
                if (!in) fclose(f);
                return NULL;
            }
            data = more;
        }
        *len += fread(data + *len, 1, cap - *len, f);
    } while (!feof(f) && !ferror(f));
    if (ferror(f)) {
        cli_fail("cannot read '%s': %s", path, strerror(errno));
        free(data);
        data = NULL;
    }
    if (!in) fclose(f);
    return data;
}

void cli_print_json_text(const char *text, size_t len)
{
    json_t *json = json_stringn(len ? text : "", len);
    if (json) {
        json_dumpf(json, stdout, JSON_ENCODE_ANY);
        json_decref(json);
        return;
    }
    putchar('"'); /* not UTF-8: byte by byte */
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 32 || c == '"' || c == '\\' || c == 127)
            printf("\\u%04x", c);
        else if (c < 128)
            putchar(c);
        else
            fputs("\\ufffd", stdout);
    }
    putchar('"');
}
