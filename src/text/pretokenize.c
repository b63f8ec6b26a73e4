/* pretokenize.c - the regular expressions of the model families, run by PCRE2.
 *
 * A pre-tokenizer is a list of expressions. Each is applied to the pieces that the one
 * before left; what it matches is a piece, and so is what lies between two matches:
 *
 *     "Don't 123"  --words-->  "Don" "'t" " " "123"  --digits-->  ... "1" "2" "3"
 *
 * The expressions match what the models' authors wrote, but are written so that no
 * input makes them slow: repeats are possessive where that changes nothing, what gives
 * back does so once per run, without a stack, and `\s+$` begins only where a run begins.
 * Every search starts where the last match ended. So the work is linear by construction,
 * and PCRE2's match limit, which is meant for the other kind, is lifted.
 *
 * White space is spelled out, because PCRE2's \s also has U+180E and those authors'
 * engines do not.
 *
 * Bytes that are not UTF-8 never reach PCRE2: a run of them is a piece of its own. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenize.h"

#include "base/utf8.h"
#include "text/nfc.h"

#include <pcre2.h>

#define WS                                                                                         \
    "\\t-\\r "                                                                                     \
    "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define SPACE    "[" WS "]"
#define NO_SPACE "[^" WS "]"

/* Spaces at the end of a run: all but the last when something follows. */
#define TRAILING SPACE "+(?!" NO_SPACE ")|" SPACE "++"

/* \s*[\r\n]+: white space up to and with the last line break of the run. The + can only
 * ever have one: whatever comes before it is white space too. */
#define LINE_END SPACE "*[\\r\\n]"

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SIGNS       " ?[^" WS "\\p{L}\\p{N}]++"
#define OTHERS      SIGNS "[\\r\\n]*+"
#define PATHS       SIGNS "[\\r\\n/]*+"
#define BEFORE      "[^\\r\\n\\p{L}\\p{N}]?"
#define LETTERS     BEFORE "\\p{L}++"

/* GPT-2's expression, and those of cl100k by how many digits make a piece. */
#define GPT_2          "'(?:s|t|re|ve|m|ll|d)| ?\\p{L}++| ?\\p{N}++|" SIGNS "|" TRAILING
#define CL100K(digits) CONTRACTION "|" LETTERS "|" digits "|" OTHERS "|" LINE_END "|" TRAILING

/* Whatever is neither white space nor one of the signs that BLOOM's authors thought of. */
#define BLOOM " ?[^(|)" WS ".,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c}]++"

/* Words as o200k and tekken see them: capitals, then small letters; letters without case and
 * marks may be either. One of the two parts may be missing. Of a run of both kinds the first
 * form takes all up to the last character that may be small, and the second form the rest, so
 * a run is looked at twice at most. */
#define CAPITAL "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALL   "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define WORDS(capital, small, end)                                                                 \
    BEFORE capital "*" small "++" end "|" BEFORE capital "++" small "*+" end
#define O200K(end, digits, others)                                                                 \
    WORDS(CAPITAL, SMALL, end) "|" digits "|" others "|" LINE_END "|" TRAILING

/* Script Han, spelled out: what \p{Han} is depends on PCRE2's version (script, or script
 * extensions). Kimi's classes are intersections with "not Han", which PCRE2 has not; so they are
 * written as what is none of the others: every category but the wanted ones, and Han. */
#define HAN                                                                                        \
    "\\x{2e80}-\\x{2e99}\\x{2e9b}-\\x{2ef3}\\x{2f00}-\\x{2fd5}\\x{3005}\\x{3007}"                  \
    "\\x{3021}-\\x{3029}\\x{3038}-\\x{303b}\\x{3400}-\\x{4dbf}\\x{4e00}-\\x{9fff}"                 \
    "\\x{f900}-\\x{fa6d}\\x{fa70}-\\x{fad9}\\x{16fe2}\\x{16fe3}\\x{16ff0}\\x{16ff1}"               \
    "\\x{20000}-\\x{2a6df}\\x{2a700}-\\x{2b739}\\x{2b740}-\\x{2b81d}\\x{2b820}-\\x{2cea1}"         \
    "\\x{2ceb0}-\\x{2ebe0}\\x{2ebf0}-\\x{2ee5d}\\x{2f800}-\\x{2fa1d}\\x{30000}-\\x{3134a}"         \
    "\\x{31350}-\\x{323af}"
#define NO_WORD        "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}"
#define CAPITAL_NO_HAN "[^" NO_WORD "\\p{Ll}" HAN "]"
#define SMALL_NO_HAN   "[^" NO_WORD "\\p{Lu}\\p{Lt}" HAN "]"

#define CJK "[\\x{800}-\\x{9fa5}\\x{ac00}-\\x{d7ff}]++"

/* Letters with case, as deepseek-llm lists them. */
#define CASED                                                                                      \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"                 \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}"         \
    "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}"                  \
    "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}"                       \
    "\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"                 \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}"                 \
    "\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}"        \
    "\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}"         \
    "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}"                 \
    "\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"                  \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}"                   \
    "\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}"        \
    "\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}"         \
    "\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"                  \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}"                 \
    "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"               \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}"         \
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

enum { MOST_STEPS = 6 };

/* The names that files give, by what they do. What a model's own tokenizer normalizes is
 * normalized here, too (Qwen, GPT-NeoX and its heirs, Command R, Hunyuan), also where other
 * programs do not. */
static const struct family {
    const char *names; /* each followed by a comma */
    bool ignores_merges, wants_bos, needs_bos, nfc;
    bool raw; /* tokens are UTF-8 with U+2581 for spaces, not bytes written as letters */
    const char *steps[MOST_STEPS + 1];
} families[] = {
    {.names = "gpt-2,gpt2,phi-2,jais,mellum,exaone4,trillion,gigachat,a.x-4.0,granite-docling,"
              "jina-es,jina-de,jina-v1-en,jina-v2-es,jina-v2-de,jina-v2-code,roberta-bpe,",
     .steps = {GPT_2}},
    {.names = "mpt,olmo,modern-bert,", .nfc = true, .steps = {GPT_2}},
    /* What llama.cpp does with a file that names none. */
    {.names = "default,", .steps = {"[\\p{P}$+<=>^~|]++", GPT_2, "\\p{N}++", "[0-9]{3}"}},
    {.names = "falcon,", .steps = {"[\\p{P}$+<=>^~|`]++", GPT_2, "[0-9]{3}"}},
    {.names = "starcoder,refact,smollm,codeshell,exaone,minerva-7b,mellum2,",
     .steps = {"\\p{N}", GPT_2}},
    {.names = "command-r,", .nfc = true, .steps = {"\\p{N}", GPT_2}},
    {.names = "poro-chat,bloom,gpt3-finnish,", .steps = {BLOOM}},
    {.names = "viking,", .steps = {BLOOM, "\\p{N}"}},
    {.names = "llama-bpe,llama3,llama-v3,falcon3,falcon-h1,pixtral,midm-2.0,lfm2,jina-v5-nano,",
     .ignores_merges = true,
     .wants_bos = true,
     .steps = {CL100K("\\p{N}{1,3}+")}},
    /* cuts like llama-bpe, merges as usual; phi-4 says dbrx */
    {.names = "dbrx,smaug-bpe,glm4,chatglm-bpe,", .steps = {CL100K("\\p{N}{1,3}+")}},
    {.names = "qwen2,deepseek-r1-qwen,f2llmv2,hunyuan,stablelm2,",
     .nfc = true,
     .steps = {CL100K("\\p{N}")}},
    {.names = "megrez,grok-2,solar-open,kormo,bailingmoe,bailingmoe2,llada-moe,",
     .steps = {CL100K("\\p{N}")}},
    {.names = "minicpm5,", .ignores_merges = true, .steps = {"\\p{N}{1,3}+", CL100K("\\p{N}++")}},
    {.names = "qwen35,", /* as qwen2, but marks belong to words */
     .nfc = true,
     .steps = {CONTRACTION "|" BEFORE "[\\p{L}\\p{M}]++|\\p{N}| ?[^" WS
                           "\\p{L}\\p{M}\\p{N}]++[\\r\\n]*+|" LINE_END "|" TRAILING}},
    {.names = "seed-coder,",
     .steps = {CONTRACTION "|" LETTERS "|\\p{N}|" SIGNS "|" LINE_END "|" TRAILING}},
    {.names = "gpt-4o,llama4,kanana2,minimax-m2,talkie,",
     .steps = {O200K(CONTRACTION "?+", "\\p{N}{1,3}+", PATHS)}},
    {.names = "tekken,",
     .ignores_merges = true,
     .wants_bos = true,
     .steps = {O200K("", "\\p{N}", PATHS)}},
    {.names = "youtu,", /* Hangul, signs of CJK, Bopomofo and CJK first */
     .ignores_merges = true,
     .steps = {"[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]++|"
               "[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}"
               "\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]++|"
               "[\\x{3105}-\\x{312f}]++|[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}]++",
               O200K(CONTRACTION "?+", "\\p{N}", PATHS)}},
    {.names = "kimi-k2,",
     .steps = {"[" HAN "]++|" WORDS(CAPITAL_NO_HAN, SMALL_NO_HAN,
                                    CONTRACTION "?+") "|\\p{N}{1,3}+|" OTHERS "|" LINE_END
                                                      "|" TRAILING}},
    {.names = "deepseek-llm,",
     .steps = {"[\\r\\n]", SPACE "?[" CASED "]++",
               SPACE "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}"
                     "\\x{3000}-\\x{3002}]++",
               "(?<!" SPACE ")" SPACE "++$", CJK, "\\p{N}"}},
    {.names = "deepseek-coder,",
     .steps = {"[\\r\\n]", SPACE "?\\p{L}++", SPACE "?\\p{P}++", CJK, "\\p{N}"}},
    {.names = "deepseek-v3,hunyuan-dense,joyai-llm,hy_v4,",
     .steps = {"\\p{N}{1,3}+", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}]++",
               "[!-/:-@[-`{-~][A-Za-z]++|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]++|"
               " ?[\\p{P}\\p{S}]++[\\r\\n]*+|" LINE_END "|" TRAILING}},
    /* Gemma 4 makes no sense without BOS, and early files of it say add_bos_token: false. */
    {.names = "gemma4,", .raw = true, .needs_bos = true, .steps = {"\\n++"}},
    {.names = "sarvam-moe,", .raw = true, .steps = {"\\n++"}},
};

struct pretokenizer {
    rad_env env;
    const struct family *family;
    pcre2_general_context *memory;
    uint32_t options; /* of every match */
    uint32_t num_steps;
    pcre2_code *steps[MOST_STEPS];
};

struct pretokenizer_match {
    rad_env env;
    pcre2_match_data *data;
    pcre2_match_context *context;
};

/* ---- PCRE2's memory comes from the env, which wants sizes back ---- */

enum { SIZE_ROOM = 64 }; /* keeps the env's alignment */

static void *pcre2_alloc(size_t bytes, void *user)
{
    const rad_env *env = user;
    size_t *memory = bytes > SIZE_MAX - SIZE_ROOM ? NULL : env->alloc(env->user, bytes + SIZE_ROOM);
    if (!memory) return NULL;
    *memory = bytes + SIZE_ROOM;
    return (char *)memory + SIZE_ROOM;
}

static void pcre2_release(void *memory, void *user)
{
    const rad_env *env = user;
    if (!memory) return;
    size_t *start = (size_t *)((char *)memory - SIZE_ROOM);
    env->free(env->user, start, *start);
}

/* ---- create ---- */

static const struct family *find_family(gguf_str name)
{
    for (size_t i = 0; i < RAD_COUNT(families); i++)
        for (const char *n = families[i].names; *n; n = strchr(n, ',') + 1)
            if ((size_t)(strchr(n, ',') - n) == name.len && memcmp(n, name.data, name.len) == 0)
                return &families[i];
    return NULL;
}

static rad_status compile_step(pretokenizer *p, const char *step, rad_error *err)
{
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *context = pcre2_compile_context_create(p->memory);
    pcre2_code *compiled = NULL;
    if (context)
        compiled = pcre2_compile((PCRE2_SPTR)step, PCRE2_ZERO_TERMINATED,
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &code, &at, context);
    pcre2_compile_context_free(context);
    if (!compiled && (!context || code == PCRE2_ERROR_HEAP_FAILED))
        return rad_fail(err, RAD_E_NOMEM, "tokenizer: no memory for the pre-tokenizer");
    if (!compiled)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "tokenizer: PCRE2 refuses \"%.60s\": error %d at %zu", step, code,
                        (size_t)at);
    /* Where there is no JIT (built without, or memory may not be made executable) the
     * interpreter gives the same matches, slower. */
    (void)pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
    p->steps[p->num_steps++] = compiled;
    return RAD_OK;
}

rad_status pretokenizer_create(const rad_env *env, gguf_str name, pretokenizer **out,
                               rad_error *err)
{
    *out = NULL;
    const struct family *family = find_family(name);
    if (!family)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "tokenizer: pre-tokenizer '%.*s' is not one we know (radish(1) lists "
                        "them under tokenizer.ggml.pre)",
                        (int)RAD_MIN(name.len, 40), name.data);
    rad_env full = rad_env_or_default(env);
    pretokenizer *p = rad_alloc(&full, sizeof *p);
    if (!p) return rad_fail(err, RAD_E_NOMEM, "tokenizer: no memory");
    p->env = full;
    p->family = family;
    p->memory = pcre2_general_context_create(pcre2_alloc, pcre2_release, &p->env);
    rad_status status = RAD_OK;
    if (!p->memory) status = rad_fail(err, RAD_E_NOMEM, "tokenizer: no memory");
    for (uint32_t i = 0; !status && family->steps[i]; i++)
        status = compile_step(p, family->steps[i], err);
    if (status) {
        pretokenizer_destroy(p);
        return status;
    }
    *out = p;
    return RAD_OK;
}

void pretokenizer_destroy(pretokenizer *p)
{
    if (!p) return;
    for (uint32_t i = 0; i < p->num_steps; i++)
        pcre2_code_free(p->steps[i]);
    pcre2_general_context_free(p->memory);
    rad_env env = p->env;
    rad_free(&env, p, sizeof *p);
}

void pretokenizer_interpret(pretokenizer *p)
{
    p->options |= PCRE2_NO_JIT;
}

bool pretokenizer_ignores_merges(const pretokenizer *p)
{
    return p->family->ignores_merges;
}
bool pretokenizer_wants_bos(const pretokenizer *p)
{
    return p->family->wants_bos;
}
bool pretokenizer_needs_bos(const pretokenizer *p)
{
    return p->family->needs_bos;
}
bool pretokenizer_normalizes(const pretokenizer *p)
{
    return p->family->nfc;
}
bool pretokenizer_is_raw(const pretokenizer *p)
{
    return p->family->raw;
}

rad_status pretokenizer_match_create(const pretokenizer *p, pretokenizer_match **out)
{
    *out = NULL;
    pretokenizer_match *match = rad_alloc(&p->env, sizeof *match);
    if (!match) return RAD_E_NOMEM;
    match->env = p->env;
    match->data = pcre2_match_data_create(1, p->memory);
    match->context = pcre2_match_context_create(p->memory);
    if (!match->data || !match->context) {
        pretokenizer_match_destroy(match);
        return RAD_E_NOMEM;
    }
    pcre2_set_match_limit(match->context, UINT32_MAX);
    *out = match;
    return RAD_OK;
}

void pretokenizer_match_destroy(pretokenizer_match *match)
{
    if (!match) return;
    pcre2_match_data_free(match->data);
    pcre2_match_context_free(match->context);
    rad_env env = match->env;
    rad_free(&env, match, sizeof *match);
}

/* ---- cutting ---- */

typedef struct cut {
    const pretokenizer *p;
    const pretokenizer_match *match;
    pretokenize_fn piece;
    void *user;
} cut;

/* The first match at or behind `from`. RAD_NONE: no more. */
static rad_status find_match(const cut *c, uint32_t step, const char *text, size_t len, size_t from,
                             size_t *start, size_t *end)
{
    const pcre2_code *code = c->p->steps[step];
    pcre2_match_data *data = c->match->data;
    uint32_t options = PCRE2_NO_UTF_CHECK | c->p->options;
    int found = pcre2_match(code, (PCRE2_SPTR)text, len, from, options, data, c->match->context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(code, (PCRE2_SPTR)text, len, from, options | PCRE2_NO_JIT, data,
                            c->match->context);
    if (found == PCRE2_ERROR_NOMATCH) return RAD_NONE;
    if (found == PCRE2_ERROR_NOMEMORY) return RAD_E_NOMEM;
    if (found < 0) return RAD_E_UNSUPPORTED;
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(data);
    *start = at[0];
    *end = at[1];
    return *end > *start ? RAD_OK : RAD_NONE;
}

static rad_status cut_by(const cut *c, uint32_t step, const char *text, size_t len)
{
    if (step == c->p->num_steps) return len ? c->piece(c->user, text, len) : RAD_OK;
    for (size_t from = 0; from < len;) {
        size_t start, end;
        rad_status status = find_match(c, step, text, len, from, &start, &end);
        if (status == RAD_NONE) return cut_by(c, step + 1, text + from, len - from);
        if (!status && start > from) status = cut_by(c, step + 1, text + from, start - from);
        if (!status) status = cut_by(c, step + 1, text + start, end - start);
        if (status) return status;
        from = end;
    }
    return RAD_OK;
}

static rad_status cut_utf8(const cut *c, const char *text, size_t len)
{
    if (!c->p->family->nfc || nfc_is_plain(text, len)) return cut_by(c, 0, text, len);
    nfc_text normal = {0};
    rad_status status = nfc_normalize(&c->p->env, text, len, &normal);
    if (!status) status = cut_by(c, 0, normal.data, normal.len);
    nfc_fini(&c->p->env, &normal);
    return status;
}

rad_status pretokenize(const pretokenizer *p, pretokenizer_match *match, const char *text,
                       size_t len, pretokenize_fn piece, void *user)
{
    const cut c = {p, match, piece, user};
    for (size_t start = 0, i = 0; start < len; start = i) {
        utf8_char first = utf8_next((const unsigned char *)text + i, len - i), next = first;
        for (; next.valid == first.valid;
             next = utf8_next((const unsigned char *)text + i, len - i)) {
            i += next.len;
            if (i == len) break;
        }
        rad_status status = first.valid ? cut_utf8(&c, text + start, i - start)
                                        : piece(user, text + start, i - start);
        if (status) return status;
    }
    return RAD_OK;
}
