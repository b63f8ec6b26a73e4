/* generate.c - `radish generate`: one prompt, one answer. */
#include "cli/ask.h"

#include <stdlib.h>

static void print_json(const ask_answer *a)
{
    static const char *const finishes[] = {"none", "stop", "length", "abort", "error"};
    printf("{\"output_ids\":[");
    for (uint32_t i = 0; i < a->num_ids; i++)
        printf("%s%d", i ? "," : "", a->ids[i]);
    printf("],\"text\":");
    cli_print_json_text(a->text, a->text_len);
    printf(",\"cached_tokens\":%u,\"prompt_tokens\":%u,\"completion_tokens\":%u,"
           "\"finish_reason\":\"%s\"}\n",
           a->cached_tokens, a->prompt_tokens, a->completion_tokens, finishes[a->finish]);
}

typedef struct generate_options {
    const char *prompt, *ids, *file, *system, *template;
    bool chat, json;
    uint32_t context_length;
} generate_options;

static int generate(const generate_options *o, model_options *model,
                    const sampling_options *sampling)
{
    rad_env env = cli_env(model);
    engine_request request = {0};
    chat_message messages[2];
    rad_token *ids = NULL;
    const char *prompt = o->prompt;
    char *read = NULL;
    size_t len = prompt ? strlen(prompt) : 0;
    ask_answer answer = {0};
    int code = 1;
    if (o->file) {
        prompt = read = cli_read_file(o->file, &len);
        if (!read) return 1;
    }
    if (o->ids && cli_parse_ids(o->ids, &ids, &request.num_ids) != 0)
        return cli_usage("generate", "--ids wants numbers and commas, not '%.60s'", o->ids);
    request.ids = ids;
    if (o->chat) {
        if (o->system)
            messages[request.num_messages++] =
                (chat_message){"system", o->system, strlen(o->system)};
        messages[request.num_messages++] = (chat_message){"user", prompt, len};
        request.messages = messages;
    } else {
        request.text = prompt;
        request.text_len = len;
    }
    sampling_options_apply(sampling, &request);

    engine *e =
        cli_engine_for_one(&env, model, o->context_length, 0, o->chat ? o->template : "none", 1);
    if (e) code = ask(e, &request, o->json ? NULL : stdout, &answer);
    if (!code && o->json) print_json(&answer);
    if (!code && !o->json) putchar('\n');
    ask_answer_fini(&answer);
    engine_destroy(e);
    free(ids);
    free(read);
    return code;
}

int cmd_generate(int argc, char **argv)
{
    model_options model = {0};
    sampling_options sampling = {.params = {.top_p = 1}, .max_new_tokens = 128};
    generate_options o = {0};
    const char *positional = NULL;
    const cli_manual manual = {
        .command = "generate",
        .usage = "generate -m MODEL (-p TEXT | --ids 1,5,9 | --file F) [options]",
        .about = "Continues one prompt and prints the text as it comes.",
        .after = "Examples:\n"
                 "  radish generate -m model.gguf -p \"Once upon a time\" -n 50\n"
                 "  radish generate -m model.gguf --chat -p \"What is the capital of France?\"\n"
                 "  radish generate -m model.gguf --ids 1,5,9 -n 60 --ignore-eos --json",
    };
    const cli_option options[] = {
        {.kind = CLI_HEADING, .help = "Prompt:"},
        {.kind = CLI_TEXT,
         .letter = 'p',
         .name = "prompt",
         .arg = "TEXT",
         .target = &o.prompt,
         .help = "The prompt: raw text unless --chat."},
        {.kind = CLI_TEXT,
         .name = "ids",
         .arg = "1,5,9",
         .target = &o.ids,
         .help = "The prompt as token ids; nothing is added."},
        {.kind = CLI_TEXT,
         .letter = 'f',
         .name = "file",
         .arg = "F",
         .target = &o.file,
         .help = "The prompt is what this file holds; - is stdin."},
        {.kind = CLI_FLAG,
         .name = "chat",
         .target = &o.chat,
         .help = "The prompt is a user's message in the model's chat format."},
        {.kind = CLI_TEXT,
         .name = "system",
         .arg = "TEXT",
         .target = &o.system,
         .help = "A system message in front, with --chat."},
        {.kind = CLI_TEXT,
         .name = "chat-template",
         .arg = "NAME",
         .target = &o.template,
         .help = "chatml, llama-3, radish, the name of one of the model file's templates (radish\n"
                 "info lists them), or a Jinja file; default: the model file's own."},
        SAMPLING_OPTIONS(&sampling, "128"),
        {.kind = CLI_HEADING, .help = "Output:"},
        {.kind = CLI_FLAG,
         .name = "json",
         .target = &o.json,
         .help = "Print one JSON object: output_ids, text, cached_tokens, prompt_tokens,\n"
                 "completion_tokens, finish_reason."},
        MODEL_OPTIONS(&model),
        DEVICE_OPTION(&model),
        {.kind = CLI_U32,
         .name = "context-length",
         .arg = "N",
         .target = &o.context_length,
         .help = "Room for prompt and answer. Default: the model's, at most 32768;\n"
                 "0 = default."},
    };
    int code = cli_parse(&manual, options, RAD_COUNT(options), argc, argv, &positional);
    if (code == CLI_GO_ON) code = model_options_check("generate", &model, positional);
    if (code != CLI_GO_ON) return code;
    if (!o.prompt + !o.ids + !o.file != 2)
        return cli_usage("generate", "give one of -p, --ids and --file");
    if (o.system && !o.chat) return cli_usage("generate", "--system wants --chat");
    if (o.chat && o.ids) return cli_usage("generate", "--chat wants a text, not --ids");
    return generate(&o, &model, &sampling);
}
