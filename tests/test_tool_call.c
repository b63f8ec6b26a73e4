/* test_tool_call.c - answers made from known calls, in every format, cut at every byte; and one by
 * one what models do beside that. */
#include "tool_call_made.h"

#include "text/literal.h"

TEST(made_answers_are_told_apart_however_they_are_cut)
{
    bool all = getenv("RADISH_TEST_LONG") != NULL;
    uint64_t seed = test_seed();
    tool_types *t = types();
    for (size_t k = 0; k < RAD_COUNT(made_formats); k++) {
        const made_format *f = &made_formats[k];
        maker m = {.rng = seed + k};
        tool_parser_params params = {.calls = tool_format_find(f->name), .types = t};
        if (f->reasoning) params.reasoning = reasoning_format_find(f->reasoning);
        CHECK(params.calls && (!f->reasoning || params.reasoning));
        for (int i = 0; i < 200; i++) {
            make_answer(&m, f);
            size_t len = m.text.len, most = all ? len : i % 20 ? 4 : 12;
            put(&m.text, "", 1);
            put(&m.want, "", 1);
            params.whole_calls = i % 2;
            for (size_t piece = 0; piece <= most; piece++) {
                size_t bytes = piece == most ? len + 1 : piece; /* and in one go */
                char *got = parse(&params, NULL, m.text.data, len, bytes, &m.rng);
                CHECKF(is_wanted(&m, got),
                       "%s, seed %llu, in %zus:\n'%s'\n gave '%s'\n want '%s'\n", f->name,
                       (unsigned long long)seed, piece, m.text.data, got, m.want.data);
                free(got);
            }
            while (m.num_args)
                json_decref(m.args[--m.num_args]);
        }
        text_buf_fini(&m.text);
        text_buf_fini(&m.want);
    }
    tool_types_destroy(t);
}

/* ---- one by one ---- */

TEST(what_only_looks_like_a_call_comes_back_byte_for_byte)
{
    static const char *const looks[][2] = {
        {"qwen", "say <tool_call> and </tool_call> \n <tool_call>{ \"x\": 1} <tool_call"},
        {"qwen", "a\n\n<tool_call>\n{\"name\": 3}"},
        {"qwen", "<tool_call>[{\"name\": \"f\"}] \n"},
        {"qwen3_coder", "the tag <tool_call> then <function=f> text <function="},
        {"qwen3_coder", "<tool_call>\n{\"name\": \"f\"}\n</tool_call>"},
        {"glm45", "<tool_call>no name at all</tool_call>"},
        {"llama3", "{\"answer\": 42}"},
        {"llama3", "{\"name\": \"Bob\", \"parameters\": {}}"}, /* no tool of that name */
        {"llama3", "{\"name\": \"f\"}"},
        {"llama3", "Use {\"name\": \"f\", \"parameters\": {}}"},
        {"llama3", "{ \"name\": \"f\", \"parameters\": 3}"},
        {"llama3", " {"},
        {"pythonic", "[f](http://x) is a link"},
        {"pythonic", "[1, 2, 3]"},
        {"pythonic", "[f(x)]"},
        {"pythonic", "[other(a=1)]"},
        {"pythonic", "As [f(s=\"x\")] shows"},
        {"lfm2", "<|tool_call_start|>nothing<|tool_call_end|>"},
        {"mistral", "[TOOL_CALLS]two words[ARGS]{}"},
        {"mistral", "[TOOL_CALLS][1]"},
        {"deepseekv3", DS("calls\u2581begin") "x" DS("sep") "{}"},
        {"functionary", "<function=f>text</function>"},
        {"gemma4", "<|tool_call>f{x:1}<tool_call|>"},
        {"kimi_k2", "<|tool_call_begin|>f{}"},
        {"granite", "<|tool_call|>[1]"},
        {"deepseekv32", "<" DSML "function_calls>none</" DSML "function_calls>"},
        {"deepseekv4", "<" DSML "tool_calls>\n<" DSML "invoke name=\"f\">text"},
        {"minimax-m2", "<minimax:tool_call><invoke name=\"a b\"></invoke>"},
        {"minimax-m2", "no <invoke name=\"f\"></invoke> without its tag"},
        {"hunyuan", "<tool_calls>[1]</tool_calls> <tool_calls:open"},
        {"cohere_command4", "<|START_ACTION|>[{\"name\": \"f\", \"parameters\": {}}]"},
        {"apertus2509", "<|tools_prefix|>[{\"f\": 1}]"},
        {"command_r", "Action: ```json\n{}\n```"},
    };
    for (size_t i = 0; i < RAD_COUNT(looks); i++) {
        char want[200];
        snprintf(want, sizeof want, "c:%s", looks[i][1]);
        expect(looks[i][0], NULL, NULL, looks[i][1], want, NULL);
    }
}

TEST(json_calls_as_models_write_them)
{
    /* both orders, other members, no arguments, null, a string, raw newlines, several in a tag */
    expect("qwen", NULL, NULL, "<tool_call>{\"arguments\": {\"n\":1}, \"name\": \"f\"}</tool_call>",
           "f{\"n\":1}|", NULL);
    expect("qwen", NULL, NULL,
           "<tool_call>{\"name\":\"f\",\"arguments\":{},\"type\":\"function\"}</tool_call>", "f{}|",
           NULL);
    expect("qwen", NULL, NULL, "<tool_call>{\"name\": \"f\"}</tool_call>", "f{}|", NULL);
    expect("qwen", NULL, NULL, "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>",
           "f{}|", NULL);
    expect("qwen", NULL, NULL,
           "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"n\\\": 1}\"}</tool_call>",
           "f{\"n\": 1}|", NULL);
    expect("qwen", NULL, NULL,
           "<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"a\nb\t\"}}</tool_call>",
           "f{\"s\":\"a\\nb\\t\"}|", NULL);
    expect("qwen", NULL, NULL,
           "<tool_call>\n{\"name\":\"f\",\"arguments\":{}}\n{\"name\":\"g\",\"arguments\":{}}</"
           "tool_call>",
           "f{}|g{}|", NULL);
    expect("qwen", NULL, NULL,
           "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n{\"name\":1}",
           "f{}|c:{\"name\":1}", NULL);
    /* without its end; text in front and behind */
    expect("qwen", NULL, NULL, "Hi \n<tool_call>{\"name\":\"f\",\"arguments\":{}}", "c:Hi|f{}|",
           NULL);
    expect("qwen", NULL, NULL, "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n done ",
           "f{}|c:done ", NULL);
    expect("qwen", NULL, NULL, "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_ca", "f{}|",
           NULL);
    /* ids */
    expect("mistral", NULL, NULL, "[TOOL_CALLS]f[CALL_ID]abcDEF123[ARGS]{\"n\": 1}",
           "f#abcDEF123{\"n\": 1}|", NULL);
    expect("mistral", NULL, NULL,
           "[TOOL_CALLS] [{\"id\": \"abcDEF123\", \"name\": \"f\", \"arguments\": {}}, "
           "{\"name\":\"g\",\"arguments\":{},\"id\":\"x\"}]",
           "f#abcDEF123{}|g{}|", NULL);
    expect(
        "kimi_k2", NULL, NULL,
        "Ok<|tool_calls_section_begin|><|tool_call_begin|>functions.get_2:0<|tool_call_argument_"
        "begin|>"
        "{\"a\":1}<|tool_call_end|><|tool_call_begin|>functions.f:1<|tool_call_argument_begin|>{}"
        "<|tool_call_end|><|tool_calls_section_end|>",
        "c:Ok|get_2#functions.get_2:0{\"a\":1}|f#functions.f:1{}|", NULL);
}

TEST(what_breaks_off_ends_broken_in_a_stream_and_is_content_as_a_whole)
{
    expect("qwen", NULL, NULL,
           "<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": ", "f{\"n\": !|",
           "c:<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": ");
    expect("qwen", NULL, NULL, "<tool_call>{\"name\":\"f\",\"arguments\":{\"n\":x}}</tool_call> y",
           "f{\"n\":!|c:x}}</tool_call> y",
           "c:<tool_call>{\"name\":\"f\",\"arguments\":{\"n\":x}}</tool_call> y");
    expect("pythonic", NULL, NULL, "[f(n=1, s=g(2))]", "f{\"n\": 1, \"s\": !|c:(2))]",
           "c:[f(n=1, s=g(2))]");
    expect("qwen3_coder", NULL, NULL, "<function=f>\n<parameter=s>\nabc", "f{\"s\": \"abc!|",
           "c:<function=f>\n<parameter=s>\nabc");
    expect("functionary", NULL, NULL, "<function=f>{\n\t<function=f>{}</function>", "f{\n\t!|f{}|",
           "c:<function=f>{|f{}|");
    expect("gpt-oss", "gpt-oss", NULL,
           "<|channel|>commentary to=functions.f<|message|>{\"n\" 1}<|call|>", "f{\"n\" !|c:1}",
           "c:{\"n\" 1}");
    expect("qwen", NULL, NULL,
           "<tool_call>{\"name\":\"f\",\"arguments\":{}}</"
           "tool_call><tool_call>{\"name\":\"g\",\"arguments\":{]",
           "f{}|g{!|c:]", "f{}|c:<tool_call>{\"name\":\"g\",\"arguments\":{]");
}

TEST(values_between_tags_are_what_the_schema_says)
{
    expect("qwen3_coder", NULL, NULL,
           "<tool_call>\n<function=f>\n<parameter=s>\n 42 "
           "</parameter>\n<parameter=n>\n42\n</parameter>\n"
           "<parameter=b>\nTrue\n</parameter><parameter=z>null</parameter><parameter=l>[1, "
           "'x']</parameter>"
           "<parameter=what>7</parameter></function></tool_call>",
           "f{\"s\": \" 42 \", \"n\": 42, \"b\": true, \"z\": null, \"l\": \"[1, 'x']\", \"what\": "
           "\"7\"}|",
           NULL);
    expect("qwen3_coder", NULL, NULL, "<function=f>\n</function>", "f{}|", NULL);
    expect(
        "qwen3_coder", NULL, NULL,
        "<function=get_x><parameter=s>a\n\n</parameter><parameter=z>\nnullx</parameter></function>",
        "get_x{\"s\": \"a\\n\", \"z\": \"nullx\"}|", NULL);
    /* A closing tag in a string of JSON is text; where the quote has no end, the first one closes,
     * whatever quotes the next value has. */
    expect("qwen3_coder", NULL, NULL,
           "<function=f><parameter=l>[\"</parameter>\", \"b\"]</parameter></function>",
           "f{\"l\": [\"</parameter>\", \"b\"]}|", NULL);
    expect("qwen3_coder", NULL, NULL,
           "<function=f><parameter=l>\"a</parameter><parameter=o>{\"b\": \"c\"}</parameter>"
           "</function>",
           "f{\"l\": \"\\\"a\", \"o\": {\"b\": \"c\"}}|", NULL);
}

TEST(calls_between_one_pair_of_wrappers)
{
    /* the attribute says what a value is; without it the schema does; nothing is trimmed */
    expect("deepseekv32", NULL, NULL,
           "Ok\n\n<" DSML "function_calls>\n<" DSML "invoke name=\"f\">\n<" DSML
           "parameter name=\"n\" string=\"true\">\n7</" DSML "parameter>\n<" DSML
           "parameter name=\"s\" string=\"false\">8</" DSML "parameter><" DSML
           "parameter name=\"n\">9</" DSML "parameter></" DSML "invoke>\n<" DSML
           "invoke name=\"g\"></" DSML "invoke>\n</" DSML "function_calls> more",
           "c:Ok|f{\"n\": \"\\n7\", \"s\": 8, \"n\": 9}|g{}|c:more", NULL);
    expect("deepseekv32", NULL, NULL,
           "<" DSML "tool_calls><" DSML "invoke name=\"f\"><" DSML
           "parameter name=\"s\" str=\"x\">",
           "f!|c:<" DSML "parameter name=\"s\" str=\"x\">",
           "c:<" DSML "tool_calls><" DSML "invoke name=\"f\"><" DSML
           "parameter name=\"s\" str=\"x\">");
    /* the end of the answer, or a second section, behind one of them */
    expect("minimax-m2", NULL, NULL, "<minimax:tool_call>\n<invoke name=\"f\">\n</invoke>\n<inv",
           "f{}|", NULL);
    expect("minimax-m2", NULL, NULL,
           "<minimax:tool_call><invoke name=\"f\"></invoke></minimax:tool_call>\n"
           "<minimax:tool_call><invoke name=\"g\"></invoke></minimax:tool_call>",
           "f{}|g{}|", NULL);
    expect("hunyuan", NULL, NULL,
           "<tool_calls><tool_call>f<tool_sep></tool_call><tool_call>g</tool_call></tool_calls>",
           "f{}|g{}|", NULL);
    expect("cohere_command4", NULL, NULL,
           "<|START_ACTION|>[{\"tool_name\": \"f\", \"parameters\": {\"n\": 1}, "
           "\"tool_call_id\": \"0\"}]<|END_ACTION|>",
           "f{\"n\": 1}|", NULL);
}

TEST(pythons_notation_becomes_json)
{
    expect("pythonic", NULL, NULL,
           "[f(s='it\\'s \\x41\\u00e9\\101\\d\\\n', n=-1_000, x=.5, y=5., e=1e5, t=(1, 'a'), "
           "d={'k': None, 2: True,}, "
           "l=[], s2=\"\"\"a\"b\n\"\"\", s3='', class=false)]",
           "f{\"s\": \"it's A\xc3\xa9"
           "A\\\\d\", \"n\": -1000, \"x\": 0.5, \"y\": 5.0, \"e\": 1e5, \"t\": [1, \"a\"], "
           "\"d\": {\"k\": null, \"2\": true}, \"l\": [], \"s2\": \"a\\\"b\\n\", \"s3\": \"\", "
           "\"class\": false}|",
           NULL);
    expect("pythonic", NULL, NULL, "<|python_start|>[any.name(), f()]<|python_end|> ok",
           "any.name{}|f{}|c:ok", NULL);
    static const char *const bad[] = {"x=01",      "x=f\"a\"", "x=a",       "x=1 2", "x=nan",
                                      "x='a' 'b'", "x={1}",    "x='\\xzz'", "x=[1}", "x=.",
                                      "x=+",       "x=--1",    "=1",        "x=1;"};
    for (size_t i = 0; i < RAD_COUNT(bad); i++) {
        char text[64], *got;
        tool_parser_params params = {.calls = tool_format_find("lfm2"), .whole_calls = true};
        snprintf(text, sizeof text, "<|tool_call_start|>[f(%s)]", bad[i]);
        got = parse(&params, NULL, text, strlen(text), 3, NULL);
        CHECKF(strncmp(got, "c:<|tool_call_start|>[f(", 24) == 0, "%s gave %s\n", text, got);
        free(got);
    }
    expect("gemma4", NULL, NULL,
           "<|tool_call>call:f{s:<|\"|>a\"<|b<|\"|>,w:plain "
           "words,n:-1.5,b:true,l:[1,<|\"|><|\"|>],o:{k:null}}<tool_call|>",
           "f{\"s\": \"a\\\"<|b\", \"w\": \"plain words\", \"n\": -1.5, \"b\": true, \"l\": [1, "
           "\"\"], "
           "\"o\": {\"k\": null}}|",
           NULL);
}

TEST(reasoning_begins_and_ends_where_the_model_and_the_prompt_say)
{
    expect(NULL, "qwen3", NULL, "<think>\n so \n</think>\n\n yes \n", "r:so|c:yes \n", NULL);
    expect(NULL, "qwen3", NULL, " no <think> here </think>", "c: no <think> here </think>", NULL);
    expect(NULL, "qwen3", "assistant\n<think>\n", "so</think>yes", "r:so|c:yes", NULL);
    expect(NULL, "qwen3", "what is <think>?<|im_end|>\n", "so</think>", "c:so</think>", NULL);
    expect(NULL, "qwen3", "<think>\n\n</think>\n\n", "yes", "c:yes", NULL);
    expect(NULL, "deepseek-r1", NULL, "so</think>yes", "r:so|c:yes", NULL);
    expect(NULL, "deepseek-r1", NULL, "<think>so</think>yes", "r:so|c:yes", NULL);
    expect(NULL, "deepseek-r1", "<think></think>", "yes", "c:yes", NULL);
    expect(NULL, "qwen3", NULL, "<think>cut off </thi", "r:cut off </thi", NULL);
    expect(NULL, "kimi", NULL, "\u25c1think\u25b7so \u25c1\u25c1/think\u25b7yes \u25c1",
           "r:so \u25c1|c:yes \u25c1", NULL);
    /* a call ends it; the word alone does not */
    expect(
        "qwen", "qwen3", NULL,
        "<think>use <tool_call> now \n<tool_call>\n{\"name\":\"f\",\"arguments\":{}}</tool_call>",
        "r:use <tool_call> now|f{}|", NULL);
    expect("mistral", "mistral", NULL, "[THINK]so[TOOL_CALLS]f[ARGS]{}", "r:so|f{}|", NULL);
    expect("gpt-oss", "gpt-oss", NULL,
           "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>"
           "b<|end|>"
           "<|start|>assistant<|channel|>final<|message|>yes < no<|return|>",
           "r:a\n\nb|c:yes < no", NULL);
    expect(NULL, "gpt-oss", NULL,
           "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|mess", "r:a",
           NULL);
    expect("gpt-oss", "gpt-oss", "<|start|>assistant<|channel|>analysis<|message|>", "so<|end|>",
           "r:so", NULL);
    expect("gpt-oss", "gpt-oss", "<|start|>assistant", "plain", "c:plain", NULL);
    expect("gpt-oss", NULL, NULL, "<|channel|>analysis<|message|>a<|end|>", "c:a", NULL);
    expect("gpt-oss", "gpt-oss", NULL,
           "<|start|>assistant to=functions.f<|channel|>commentary json<|message|><|call|>", "f{}|",
           NULL);
}

/* ---- limits ---- */

TEST(what_is_held_has_a_limit)
{
    static const struct {
        const char *format, *begin, *more;
    } cases[] = {{"qwen", "<tool_call>{\"arguments\":{\"a\":\"", "xxxxxxxxxxxxxxxx"},
                 {"qwen", "<tool_call>", "                 "},
                 {"qwen", "a", "\n\n\n\n\n\n\n\n\n\n\n"},
                 {"qwen3_coder", "<function=f><parameter=l>", "[[[[[[[[[[[[[[[[[[["},
                 {"qwen3_coder", "<function=", "fffffffffffffff"},
                 {"gpt-oss", "<|channel|>", "abcdefghijklmn"},
                 {"gpt-oss", "<|channel|>a to=functions.f<|message|>", "               "},
                 {"llama3", "{\"name\":\"f\",\"x", "yyyyyyyyyyyyyyyyyyyyyy"},
                 {"pythonic", "[f(", "              "},
                 {"gemma4", "<|tool_call>call:f{k:", "wwwwwwwwwwwwwwwwww"},
                 {"deepseekv3", DS("call\u2581begin"), "nnnnnnnnnnnnnnnnn"},
                 {"deepseekv32", "<" DSML "tool_calls>", "                "},
                 {"apertus2509", "<|tools_prefix|>[{\"", "ffffffffffffffff"},
                 {"hunyuan", "<tool_calls>[{\"x", "yyyyyyyyyyyyyyyyyyy"}};
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        heard h = {.kind = -1, .left = -1};
        const tool_parser_params params = {.calls = tool_format_find(cases[i].format)};
        size_t most = 0, fed = 0;
        tool_parser *p;
        CHECK_OK(tool_parser_create(&params, &p));
        CHECK_OK(tool_parser_feed(p, cases[i].begin, strlen(cases[i].begin), hear, &h));
        for (; fed < 300000; fed += strlen(cases[i].more)) {
            CHECK_OK(tool_parser_feed(p, cases[i].more, strlen(cases[i].more), hear, &h));
            most = RAD_MAX(most, tool_parser_bytes(p));
        }
        CHECKF(most < 3 * TOOL_CALL_MOST_HELD, "%s holds %zu\n", cases[i].format, most);
        CHECK_OK(tool_parser_finish(p, hear, &h));
        tool_parser_destroy(p);
        text_buf_fini(&h.text);
    }
}

TEST(nesting_has_a_limit_and_one_call_may_be_all)
{
    char deep[400] = "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", *got;
    memset(deep + strlen(deep), '[', 100);
    tool_parser_params params = {.calls = tool_format_find("qwen"), .whole_calls = true};
    got = parse(&params, NULL, deep, strlen(deep), 1, NULL);
    CHECK(strncmp(got, "c:<tool_call>", 13) == 0);
    free(got);
    static const char two[] = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"
                              "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call> text";
    params.one_call = true;
    for (size_t piece = 1; piece < sizeof two; piece++) {
        got = parse(&params, NULL, two, sizeof two - 1, piece, NULL);
        CHECKF(strcmp(got, "f{}|") == 0, "%s\n", got);
        free(got);
    }
}

TEST(who_listens_may_have_no_memory)
{
    static const char text[] =
        "<think>a</think>b<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
    const tool_parser_params params = {.calls = tool_format_find("qwen"),
                                       .reasoning = reasoning_format_find("qwen3")};
    for (long n = 0; n < 5; n++) {
        heard h = {.kind = -1, .left = n};
        tool_parser *p;
        CHECK_OK(tool_parser_create(&params, &p));
        CHECK(tool_parser_feed(p, text, sizeof text - 1, hear, &h) == RAD_E_NOMEM);
        CHECK(tool_parser_finish(p, hear, &h) == RAD_E_NOMEM);
        tool_parser_destroy(p);
        text_buf_fini(&h.text);
    }
}

/* ---- names and templates ---- */

static const char *detected(const char *text)
{
    static char name[64];
    return tool_format_name(tool_format_detect(text, strlen(text)), name, sizeof name);
}

TEST(a_template_says_what_the_format_is)
{
    static const char *const cases[][2] = {
        {"{{ '<tool_call>\\n{\"name\": ' }}", "qwen"},
        {"<tool_call>\n<function=example>\n<parameter=x>", "qwen3_coder"},
        {"<tool_call>{{ name }}\n<arg_key>", "glm45"},
        {"\"parameters\": dictionary of argument name and its value", "llama3"},
        {"[func_name1(params_name1=params_value1)]", "pythonic"},
        {"'[TOOL_CALLS]' and <|python", "mistral"},
        {"<\uff5ctool\u2581"
         "calls\u2581"
         "begin\uff5c>",
         "deepseekv3"},
        {"<|channel|>analysis<|message|>", "gpt-oss"},
        {"<|tool_call>call:", "gemma4"},
        {"<|tool_list_start|>", "lfm2"},
        {"<function={name}>", "functionary"},
        {"set dsml = '\uff5cDSML\uff5c'", "deepseekv32"},
        {"'<tool_sep{}>'.format(x) '<tool_call{}>'", "hunyuan"},
        {"<tool_calls>[ <tool_call>", "hunyuan"},
        {"<minimax:tool_call>", "minimax-m2"},
        {"<|tools_prefix|>[", "apertus2509"},
        {"<|START_ACTION|>", "cohere_command4"},
        {"'\\nAction:\\n```json\\n[\\n'", "command_r"},
        {"<|im_start|>", "none"},
        {"", "none"},
    };
    for (size_t i = 0; i < RAD_COUNT(cases); i++)
        CHECKF(strcmp(detected(cases[i][0]), cases[i][1]) == 0, "%s: %s\n", cases[i][0],
               detected(cases[i][0]));
    char name[64], names[600];
    CHECK(!strcmp(reasoning_format_name(reasoning_format_detect("a</think>", 9), name, sizeof name),
                  "qwen3"));
    CHECK(!reasoning_format_detect("<|im_start|>", 12));
    CHECK(tool_format_find("hermes") == tool_format_find("qwen25"));
    CHECK(!tool_format_find("herme") && !tool_format_find("") && !reasoning_format_find("x"));
    CHECK(strstr(tool_format_names(names, sizeof names),
                 "deepseekv31, deepseekv32, deepseekv4, functionary"));
    CHECK(strlen(reasoning_format_names(names, sizeof names)) > 100);
}

TEST_MAIN()
