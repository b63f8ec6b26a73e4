/* tokenize.c - `radish tokenize`: bytes to token ids. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>

static void print_ids(const token_buf *ids)
{
    printf("{\"ids\":[");
    for (uint32_t i = 0; i < ids->len; i++)
        printf("%s%d", i ? "," : "", ids->ids[i]);
    printf("]}\n");
}

static void print_pieces(const tokenizer *t, const token_buf *ids)
{
    char piece[TOKENIZER_MAX_PIECE];
    for (uint32_t i = 0; i < ids->len; i++) {
        size_t len = tokenizer_piece(t, ids->ids[i], true, piece, sizeof piece);
        printf("%8d  ", ids->ids[i]);
        cli_print_json_text(piece, RAD_MIN(len, sizeof piece));
        putchar('\n');
    }
}

int cmd_tokenize(int argc, char **argv)
{
    model_options model = {0};
    const char *text = NULL, *file = NULL, *positional = NULL;
    bool json = false, bos = false, special = false;
    const cli_manual manual = {
        .command = "tokenize",
        .usage = "tokenize -m MODEL (-p TEXT | --file F) [options]",
        .about =
            "Prints the token ids of a text, as the model's vocabulary has them. The model file\n"
            "may hold a vocabulary only.",
    };
    const cli_option options[] = {
        {.kind = CLI_HEADING, .help = "Text:"},
        {.kind = CLI_TEXT,
         .letter = 'p',
         .name = "prompt",
         .arg = "TEXT",
         .target = &text,
         .help = "The text."},
        {.kind = CLI_TEXT,
         .letter = 'f',
         .name = "file",
         .arg = "F",
         .target = &file,
         .help = "The text is the bytes of this file; - is stdin."},
        {.kind = CLI_FLAG,
         .name = "bos",
         .target = &bos,
         .help = "Put BOS in front where the vocabulary asks for it."},
        {.kind = CLI_FLAG,
         .name = "special",
         .target = &special,
         .help = "Special tokens written in the text become their ids."},
        {.kind = CLI_FLAG,
         .name = "json",
         .target = &json,
         .help = "Print one JSON object: {\"ids\":[...]}."},
        MODEL_OPTIONS(&model),
    };
    int code = cli_parse(&manual, options, RAD_COUNT(options), argc, argv, &positional);
    if (code == CLI_GO_ON) code = model_options_check("tokenize", &model, positional);
    if (code != CLI_GO_ON) return code;
    if (!text == !file) return cli_usage("tokenize", "give either -p or --file");

    rad_env env = cli_env(&model);
    rad_error err = {0};
    gguf_file *gguf = NULL;
    tokenizer *t = NULL;
    token_buf ids = {0};
    char *read = NULL;
    size_t len = text ? strlen(text) : 0;
    unsigned flags = (bos ? TOKENIZER_ADD_BOS : 0) | (special ? TOKENIZER_PARSE_SPECIAL : 0);
    if (file && !(text = read = cli_read_file(file, &len))) return 1;
    code = 0;
    if (gguf_open(&env, model.model, &gguf, &err) != RAD_OK ||
        tokenizer_create(&env, gguf, &t, &err) != RAD_OK ||
        tokenizer_encode(t, text, len, flags, 0, &ids, &err) != RAD_OK)
        code = cli_fail("%s", err.text);
    else if (json)
        print_ids(&ids);
    else
        print_pieces(t, &ids);
    token_buf_fini(&ids);
    tokenizer_destroy(t);
    gguf_close(gguf);
    free(read);
    return code;
}
