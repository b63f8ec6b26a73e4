/* test_tool_grammar.c - calls made by a family's grammar, by a sampler that takes any token that is
 * allowed, are found again by its parser, and their arguments have the form of their schema. */
#include "test.h"
#include "tiny_vocab.h"

#include "grammar/grammar.h"
#include "text/tool_call_impl.h"
#include "text/tool_grammar.h"

static void put(text_buf *b, const char *text, size_t len)
{
    CHECK_OK(text_buf_append(b, text, len));
}

#define DS(x) "<\uff5ctool\u2581" x "\uff5c>"
enum { MOST_STEPS = 1500 };
#define DSML "\uff5cDSML\uff5c"

/* A family and what its vocabularies have tokens for; what ends a text of it comes first. */
static const struct made_family {
    const char *name;
    const char *tokens[12];
} families[] = {
    {"qwen", {"</tool_call>", "<tool_call>"}},
    {"qwen3_coder", {"</parameter>", "</tool_call>", "<tool_call>"}},
    {"seed_oss", {"</parameter>", "</seed:tool_call>", "<seed:tool_call>"}},
    {"glm45",
     {"</arg_value>", "</tool_call>", "<tool_call>", "<arg_key>", "</arg_key>", "<arg_value>"}},
    {"minimax-m2", {"</parameter>", "</minimax:tool_call>", "<minimax:tool_call>"}},
    {"deepseekv32", {"</" DSML "parameter>", DSML}},
    {"hunyuan",
     {"</arg_value>", "</tool_calls>", "<tool_calls>", "<tool_call>", "</tool_call>", "<tool_sep>",
      "<arg_key>", "</arg_key>", "<arg_value>"}},
    {"hunyuan",
     {"</arg_value:opensource>", "</tool_calls:opensource>", "<tool_calls:opensource>",
      "<tool_call:opensource>", "</tool_call:opensource>", "<tool_sep:opensource>",
      "<arg_key:opensource>", "</arg_key:opensource>", "<arg_value:opensource>"}},
    {"llama3", {"<|python_tag|>"}},
    {"granite", {"<|tool_call|>"}},
    {"nemotron_v2", {"</TOOLCALL>", "<TOOLCALL>"}},
    {"functionary", {"</function>", "<function="}},
    {"mistral", {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}},
    {"mistral", {"[TOOL_CALLS]"}},
    {"kimi_k2",
     {"<|tool_calls_section_end|>", "<|tool_calls_section_begin|>", "<|tool_call_begin|>",
      "<|tool_call_end|>", "<|tool_call_argument_begin|>"}},
    {"deepseekv3",
     {DS("calls\u2581end"), DS("calls\u2581begin"), DS("call\u2581begin"), DS("call\u2581end"),
      DS("sep")}},
    {"cohere_command4", {"<|END_ACTION|>", "<|START_ACTION|>"}},
    {"command_r", {"```"}},
    {"apertus2509", {"<|tools_suffix|>", "<|tools_prefix|>"}},
    {"gigachat3", {"<|function_call|>", "<|role_sep|>"}},
    {"gigachat3", {"<|role_sep|>"}},
    {"gemma4", {"<tool_call|>", "<|\"|>", "<|tool_call>"}},
    {"functiongemma", {"<end_function_call>", "<escape>", "<start_function_call>"}},
    {"lfm2", {"<|tool_call_end|>", "<|tool_call_start|>"}},
    {"pythonic", {"<|python_end|>", "<|python_start|>"}},
    {"pythonic", {")]"}},
    {"gpt-oss", {"<|end|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|start|>"}},
};

#define PARAMETERS                                                                                 \
    "{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\"},"                            \
    "\"p\":{\"type\":\"string\",\"pattern\":\"^[A-Z<]{2}-[0-9]{2}\"},"                             \
    "\"l\":{\"type\":\"string\",\"minLength\":2,\"maxLength\":5},"                                 \
    "\"e\":{\"enum\":[\"a<b\",\"\\n\\\"c\",\"null\"]},\"d\":{\"type\":\"string\","                 \
    "\"format\":\"date\"},\"z\":{\"anyOf\":[{\"type\":\"string\",\"minLength\":3},"                \
    "{\"type\":\"null\"}]},\"m\":{\"type\":[\"string\",\"integer\"],\"maxLength\":4},"             \
    "\"n\":{\"type\":\"integer\",\"minimum\":-3,\"maximum\":44},"                                  \
    "\"x\":{\"type\":\"number\"},\"b\":{\"type\":\"boolean\"},\"a\":{\"type\":\"array\","          \
    "\"maxItems\":2,\"items\":{\"$ref\":\"#/$defs/point\"}},\"w\":{\"const\":[null,"               \
    "true,\"x\"]},\"o\":{\"type\":\"object\",\"properties\":{\"a b\":{\"type\":\"null\"},"         \
    "\"c\\\"\":{\"enum\":[\"<|\\\"|\",{\"k\":\"\"}]}},"                                            \
    "\"patternProperties\":{\"^x\":{\"type\":\"boolean\"}},"                                       \
    "\"additionalProperties\":{\"type\":\"string\",\"maxLength\":3},"                              \
    "\"maxProperties\":3},\"any_value\":{}},\"required\":[\"s\",\"p\",\"z\",\"n\"],"               \
    "\"additionalProperties\":false,\"$defs\":{\"point\":{\"type\":\"object\","                    \
    "\"properties\":{\"t\":{\"type\":\"string\"},\"on\":{\"enum\":[true,null]}},"                  \
    "\"required\":[\"t\"],\"additionalProperties\":false}}}"

#define WAYS                                                                                       \
    "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\",\"maximum\":5,\"minimum\":"  \
    "0},"                                                                                          \
    "\"y\":{\"type\":\"null\"},\"z\":{\"type\":\"boolean\"}},\"additionalProperties\":false,"      \
    "\"required\":"                                                                                \
    "[\"y\"],\"anyOf\":[{\"required\":[\"x\"]},{\"required\":[\"z\",\"y\"]}]}"

static const char tools_of_test[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true,"
    "\"parameters\":" PARAMETERS
    "}},{\"type\":\"function\",\"function\":{\"name\":\"get_x\",\"strict\":true,\"parameters\":"
    "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"ways\",\"strict\":true,\"parameters\":" WAYS
    "}}]";

typedef struct vocab {
    tokenizer *tok;
    grammar_vocab *v;
    uint32_t size;
    rad_token end;
    rad_token closers[16];
    uint32_t num_closers;
} vocab;

/* With the family's tokens, as control tokens or as plain ones. */
static void vocab_init(vocab *v, const struct made_family *f, bool control)
{
    static const char *const plain[] = {"\"", "}", "]", ")", "<", ",", "\n", "/"};
    tiny_special specials[16] = {{"<eos>", 3}};
    size_t n = 1;
    for (size_t i = 0; i < RAD_COUNT(f->tokens) && f->tokens[i]; i++)
        specials[n++] = (tiny_special){f->tokens[i], control ? 3 : 4};
    gguf_builder b;
    rad_error err = {0};
    tiny_bpe_with(&b, "gpt-2", specials, n);
    *v = (vocab){.tok = tiny_open(NULL, &b, &err)};
    CHECKF(v->tok, "%s\n", err.text);
    v->size = tokenizer_vocab_size(v->tok);
    v->end = tokenizer_eos(v->tok);
    grammar_piece pieces[512];
    char bytes[8192], *at = bytes;
    CHECK(v->size <= RAD_COUNT(pieces));
    for (uint32_t id = 0; id < v->size; id++) {
        const size_t len =
            tokenizer_piece(v->tok, (rad_token)id, true, at, (size_t)(bytes + sizeof bytes - at));
        pieces[id] = (grammar_piece){.bytes = at,
                                     .len = (uint32_t)len,
                                     .control = tokenizer_is_control(v->tok, (rad_token)id)};
        at += len;
    }
    const grammar_vocab_params p = {
        .pieces = pieces, .vocab_size = v->size, .end_tokens = &v->end, .num_end_tokens = 1};
    CHECK_OK(grammar_vocab_create(NULL, &p, &v->v, &err));
    for (size_t i = 0; i < 2 && f->tokens[i]; i++)
        v->closers[v->num_closers++] = tokenizer_find(v->tok, f->tokens[i], strlen(f->tokens[i]));
    for (size_t i = 0; i < RAD_COUNT(plain); i++)
        v->closers[v->num_closers++] = plain[i][0] == '\n' ? 10 : (rad_token)plain[i][0];
}

static void vocab_fini(vocab *v)
{
    grammar_vocab_destroy(v->v);
    tokenizer_destroy(v->tok);
}

static bool has(const uint32_t *bits, rad_token id)
{
    return bits[id / 32] >> id % 32 & 1;
}

/* Any token that is allowed; late in a text what ends something, if it is. */
static rad_token draw(const vocab *v, const uint32_t *bits, uint32_t taken, uint64_t *rng)
{
    if (has(bits, v->end)) return v->end;
    if (taken > 60)
        for (uint32_t i = 0; i < v->num_closers; i++) {
            const rad_token id = v->closers[test_random(rng) % v->num_closers];
            if (has(bits, id)) return id;
        }
    for (;;) {
        rad_token id = (rad_token)(test_random(rng) % v->size);
        if (has(bits, id)) return id;
    }
}

/* False: it has not come to an end in MOST_STEPS. */
static bool sample(const vocab *v, grammar *g, text_buf *text, uint64_t *rng)
{
    uint32_t bits[16] = {0}, taken = 0;
    char piece[TOKENIZER_MAX_PIECE];
    grammar_matcher *m = grammar_matcher_create(g);
    CHECK(m && grammar_mask_words(v->size) <= RAD_COUNT(bits));
    text->len = 0;
    for (; taken < MOST_STEPS; taken++) {
        CHECK_OK(grammar_mask(m, bits));
        const rad_token id = draw(v, bits, taken, rng);
        CHECK_OK(grammar_accept(m, id));
        if (grammar_has_ended(m)) break;
        put(text, piece, tokenizer_piece(v->tok, id, true, piece, sizeof piece));
    }
    put(text, "", 1);
    text->len--;
    grammar_matcher_destroy(m);
    return taken < MOST_STEPS;
}

/* ---- what the parser hears ---- */

typedef struct calls_heard {
    text_buf name, args, content;
    grammar *schemas[3]; /* of f, of get_x and of ways */
    uint32_t count, wrong, broken;
} calls_heard;

static bool hear_call(void *user, const said *what)
{
    calls_heard *h = user;
    if (what->kind == SAID_CONTENT) put(&h->content, what->text, what->len);
    if (what->kind == SAID_CALL) {
        h->name.len = h->args.len = 0;
        put(&h->name, what->text, what->len);
        put(&h->name, "", 1);
    }
    if (what->kind == SAID_ARGUMENTS) put(&h->args, what->text, what->len);
    if (what->kind != SAID_CALL_END) return true;
    const int which = !strcmp(h->name.data, "ways") ? 2 : !strcmp(h->name.data, "get_x");
    h->count++;
    h->broken += what->broken;
    if ((!which && strcmp(h->name.data, "f")) ||
        grammar_try(h->schemas[which], h->args.data, h->args.len, true) != RAD_OK) {
        put(&h->args, "", 1);
        printf("%s(%s)\n", h->name.data, h->args.data);
        h->wrong++;
    }
    return true;
}

static void hear_all(calls_heard *h, const tool_parser_params *params, const text_buf *text)
{
    tool_parser *p;
    h->count = h->wrong = h->broken = 0;
    h->content.len = 0;
    CHECK_OK(tool_parser_create(params, &p));
    CHECK_OK(tool_parser_feed(p, text->data, text->len, hear_call, h));
    CHECK_OK(tool_parser_finish(p, hear_call, h));
    tool_parser_destroy(p);
}

static grammar *schema_of(grammar_vocab *v, const char *schema)
{
    const grammar_spec spec = {
        .kind = GRAMMAR_JSON_SCHEMA, .text = schema, .len = strlen(schema), .closed_objects = true};
    grammar *g = NULL;
    rad_error err = {0};
    CHECKF(grammar_compile(v, &spec, NULL, &g, &err) == RAD_OK, "%s\n", err.text);
    return g;
}

/* Texts that the grammar has: all their calls are heard, and keep to their schemas. With
 * `required` there is nothing but calls. */
static void round_trips(const struct made_family *f, bool control, bool required, uint64_t *rng)
{
    const uint32_t rounds = getenv("RADISH_TEST_LONG") ? 400 : 8;
    uint32_t ended = 0;
    vocab v;
    text_buf ebnf = {0}, text = {0};
    rad_error err = {0};
    json_t *tools = json_loads(tools_of_test, 0, NULL);
    tool_parser_params params = {.calls = tool_format_find(f->name)};
    if (tool_format_has_channels(params.calls)) params.reasoning = reasoning_format_find(f->name);
    vocab_init(&v, f, control);
    CHECK_OK(tool_types_create(tools, (tool_types **)(uintptr_t)&params.types));
    const tool_grammar_params p = {.calls = params.calls,
                                   .tok = v.tok,
                                   .tools = tools,
                                   .required = required,
                                   .one_call = control,
                                   .strict_only = !required};
    CHECKF(tool_grammar_write(&p, &ebnf, &err) == RAD_OK, "%s\n", err.text);
    const grammar_spec spec = {
        .kind = GRAMMAR_EBNF, .text = ebnf.data, .len = ebnf.len, .closed_objects = true};
    grammar *g = NULL;
    CHECKF(grammar_compile(v.v, &spec, NULL, &g, &err) == RAD_OK, "%s: %s\n%.*s\n", f->name,
           err.text, (int)ebnf.len, ebnf.data);
    calls_heard h = {.schemas = {schema_of(v.v, PARAMETERS),
                                 schema_of(v.v, "{\"type\":\"object\",\"properties\":{},"
                                                "\"additionalProperties\":false}"),
                                 schema_of(v.v, WAYS)}};
    for (uint32_t i = 0; i < rounds; i++) {
        if (!sample(&v, g, &text, rng)) continue;
        ended++;
        params.whole_calls = i % 2;
        hear_all(&h, &params, &text);
        put(&h.content, "", 1);
        CHECKF(!h.wrong && !h.broken && (!required || (h.count && !h.content.data[0])),
               "%s, control %d, required %d: %u calls, %u broken, content '%s' of\n%s\n", f->name,
               control, required, h.count, h.broken, h.content.data, text.data);
    }
    CHECKF(ended || !control, "%s: of %u texts %u ended\n", f->name, rounds, ended);
    for (size_t i = 0; i < RAD_COUNT(h.schemas); i++)
        grammar_unref(h.schemas[i]);
    grammar_unref(g);
    tool_types_destroy((tool_types *)(uintptr_t)params.types);
    json_decref(tools);
    text_buf_fini(&ebnf);
    text_buf_fini(&text);
    text_buf_fini(&h.name);
    text_buf_fini(&h.args);
    text_buf_fini(&h.content);
    vocab_fini(&v);
}

TEST(what_a_familys_grammar_has_its_parser_hears)
{
    uint64_t rng = test_told_seed();
    for (size_t i = 0; i < tool_num_formats; i++) { /* none is left out */
        bool made = false;
        for (size_t k = 0; k < RAD_COUNT(families); k++)
            made |= tool_format_find(families[k].name) == &tool_formats[i];
        CHECKF(made, "%s\n", tool_formats[i].names);
    }
    for (size_t i = 0; i < RAD_COUNT(families); i++) {
        const bool channels = tool_format_has_channels(tool_format_find(families[i].name));
        for (int control = channels; control < 2; control++) {
            round_trips(&families[i], control, true, &rng);
            if (!channels) round_trips(&families[i], control, false, &rng);
        }
    }
}

/* ---- tools that no call can have ---- */

/* The status of writing calls of one tool; its words in *err. */
static rad_status write_tool(const struct made_family *f, const char *name, const char *parameters,
                             rad_error *err)
{
    vocab v;
    text_buf ebnf = {0};
    json_t *schema = json_loads(parameters, 0, NULL);
    json_t *tools = json_pack("[{s{ss so}}]", "function", "name", name, "parameters", schema);
    CHECK(schema && tools);
    vocab_init(&v, f, true);
    const tool_grammar_params p = {
        .calls = tool_format_find(f->name), .tok = v.tok, .tools = tools, .required = true};
    rad_status status = tool_grammar_write(&p, &ebnf, err);
    CHECK(ebnf.len <= 4 << 20);
    text_buf_fini(&ebnf);
    json_decref(tools);
    vocab_fini(&v);
    return status;
}

/* A call that the parser would not hear as it was written is refused in words. */
TEST(names_that_no_call_can_have_are_refused)
{
    static const struct {
        const char *family, *name, *parameters;
        rad_status status;
        const char *words;
    } cases[] = {
        {"qwen", "get weather", "{}", RAD_E_INVAL, "'get weather' is no name"},
        {"qwen3_coder", "f>", "{}", RAD_E_INVAL, "is no name"},
        {"qwen", "n.s:get_x-1/2", "{\"properties\":{\"a>b\":{},\" \":{}}}", RAD_OK, ""},
        {"qwen3_coder", "f", "{\"properties\":{\"a>b\":{}}}", RAD_E_UNSUPPORTED, "'a>b' of 'f'"},
        {"glm45", "f", "{\"properties\":{\"a>b\":{}}}", RAD_OK, ""},
        {"minimax-m2", "f", "{\"properties\":{\" a\":{}}}", RAD_E_UNSUPPORTED, "' a'"},
        {"deepseekv32", "f", "{\"properties\":{\"a\\\"b\":{}}}", RAD_E_UNSUPPORTED, "'a\"b'"},
        {"lfm2", "f", "{\"properties\":{\"a b\":{}}}", RAD_E_UNSUPPORTED, "'a b'"},
        {"lfm2", "f", "{\"properties\":{\"file-path\":{}}}", RAD_OK, ""},
        {"lfm2", "f", "{\"properties\":{\"\":{}}}", RAD_E_UNSUPPORTED, "parameter ''"},
        {"qwen3_coder", "f", "{\"properties\":{\"a\":{\"items\":{\"$ref\":\"#\"}}}}",
         RAD_E_UNSUPPORTED, "'a' of 'f'"},
        {"qwen", "f", "{\"properties\":{\"a\":{\"items\":{\"$ref\":\"#\"}}}}", RAD_OK, ""},
        {"gemma4", "f", "{\"properties\":{\"a b\":{}},\"minProperties\":1,\"anyOf\":[{}]}", RAD_OK,
         ""},
        {"glm45", "f", "{\"properties\":{\"a\":{}},\"anyOf\":[{\"required\":[\"a\"]}]}", RAD_OK,
         ""},
        {"glm45", "f", "{\"properties\":{\"a\":{}},\"anyOf\":[{\"required\":[\"b\"]}]}",
         RAD_E_UNSUPPORTED, "cannot be kept to 'anyOf' of all parameters of 'f'"},
        {"lfm2", "f", "{\"properties\":{\"a\":{}},\"anyOf\":[{\"minProperties\":1}]}",
         RAD_E_UNSUPPORTED, "'anyOf'"},
        {"qwen3_coder", "f", "{\"properties\":{\"a\":{}},\"minProperties\":1}", RAD_E_UNSUPPORTED,
         "'minProperties'"},
        {"qwen3_coder", "f",
         "{\"properties\":{\"a\":{}},\"required\":[\"a\"],\"minProperties\":1,\"maxProperties\":1}",
         RAD_OK, ""},
        {"lfm2", "f", "{\"properties\":{\"a\":{},\"b\":{}},\"maxProperties\":1}", RAD_E_UNSUPPORTED,
         "'maxProperties'"},
        {"lfm2", "f", "{\"required\":[\"a\"]}", RAD_E_UNSUPPORTED, "'required'"},
        {"seed_oss", "f", "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{}}}", RAD_E_UNSUPPORTED,
         "'$ref'"}};
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        rad_error err = {0};
        size_t at = 0;
        while (strcmp(families[at].name, cases[i].family) != 0)
            at++;
        const rad_status status =
            write_tool(&families[at], cases[i].name, cases[i].parameters, &err);
        CHECKF(status == cases[i].status && strstr(err.text, cases[i].words), "%zu: %d %s\n", i,
               status, err.text);
    }
}

/* Each parameter's schema has all that parameters share: many of them times much of it. */
TEST(what_parameters_share_has_a_limit)
{
    enum { COUNT = 2000, SHARED = 10000 };
    char *text = malloc(COUNT * 24 + SHARED + 200);
    size_t len = (size_t)sprintf(text,
                                 "{\"$defs\":{\"a\":{\"description\":\"%*s\"}},"
                                 "\"properties\":{",
                                 SHARED, "");
    for (int i = 0; i < COUNT; i++)
        len += (size_t)sprintf(text + len, "%s\"p%d\":{}", i ? "," : "", i);
    sprintf(text + len, "}}");
    rad_error err = {0};
    CHECK(write_tool(&families[1], "f", text, &err) == RAD_E_LIMIT && strstr(err.text, "longer"));
    free(text);
}

TEST_MAIN()
