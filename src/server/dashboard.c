/* dashboard.c - GET /: a page for browsers, a few words for everybody else.
 *
 * The page is one document, of four files that are part of the program:
 *
 *     dashboard/page.html   with the marks @STYLE@, @UPLOT@ and @APP@ in it
 *     dashboard/style.css   and uPlot.min.css
 *     dashboard/uPlot.iife.min.js, app.js
 *
 * It fetches nothing from elsewhere, and may not: its Content-Security-Policy lets it run just
 * these scripts and this style, by their hashes, and talk to this server alone. The page has no
 * secrets and no figures, so whoever reaches the port may have it; what it shows it asks for with
 * the administrator's key (inspect.h). Made when the first browser comes. */
#include "server/dashboard.h"

#include "server/server_priv.h"
#include <radish/radish.h>

#include <event2/keyvalq_struct.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <zlib.h>

#define PAGE_TEXT(symbol, path)                                                                    \
    __asm__(".pushsection .rodata,\"a\",%progbits\n"                                               \
            ".globl " #symbol "\n"                                                                 \
            ".hidden " #symbol "\n"                                                                \
            ".type " #symbol ",%object\n" #symbol ":\n"                                            \
            ".incbin \"" RADISH_SRC "/server/dashboard/" path "\"\n"                               \
            ".byte 0\n"                                                                            \
            ".size " #symbol ", . - " #symbol "\n"                                                 \
            ".popsection\n");                                                                      \
    extern const char symbol[] __attribute__((visibility("hidden"))) /* ends in NUL */

PAGE_TEXT(dashboard_page_html, "page.html");
PAGE_TEXT(dashboard_style_css, "style.css");
PAGE_TEXT(dashboard_app_js, "app.js");
PAGE_TEXT(dashboard_uplot_js, "uPlot.iife.min.js");
PAGE_TEXT(dashboard_uplot_css, "uPlot.min.css");

struct dashboard {
    char *page, *packed; /* packed: by gzip; NULL: it could not be */
    size_t len, packed_len;
    char policy[512];
};

void dashboard_destroy(dashboard *d)
{
    if (!d) return;
    free(d->page);
    free(d->packed);
    free(d);
}

enum { SOURCE_BYTES = 80 };

/* 'sha256-...' of the text, as a policy names it. */
static bool hash_source(const char *text, size_t len, char source[SOURCE_BYTES])
{
    unsigned char hash[EVP_MAX_MD_SIZE], base64[64];
    unsigned bytes = 0;
    if (!EVP_Digest(text, len, hash, &bytes, EVP_sha256(), NULL)) return false;
    EVP_EncodeBlock(base64, hash, (int)bytes);
    snprintf(source, SOURCE_BYTES, "'sha256-%s'", (const char *)base64);
    return true;
}

typedef struct page_part {
    const char *mark;
    const char *texts[2]; /* one behind the other; the second may be NULL */
    char source[SOURCE_BYTES];
} page_part;

static char *put(char *to, const char *text, size_t len)
{
    memcpy(to, text, len);
    return to + len;
}

/* The page with each mark replaced, and the parts' hashes. */
static char *put_together(page_part *parts, size_t num_parts, size_t *len)
{
    size_t room = strlen(dashboard_page_html) + 1;
    for (size_t i = 0; i < num_parts; i++)
        for (int k = 0; k < 2; k++)
            room += parts[i].texts[k] ? strlen(parts[i].texts[k]) : 0;
    char *page = malloc(room), *to = page;
    const char *from = dashboard_page_html;
    for (size_t i = 0; page && i < num_parts; i++) {
        const char *mark = strstr(from, parts[i].mark);
        if (!mark) {
            free(page);
            return NULL;
        }
        to = put(to, from, (size_t)(mark - from));
        const char *begin = to;
        for (int k = 0; k < 2; k++)
            if (parts[i].texts[k]) to = put(to, parts[i].texts[k], strlen(parts[i].texts[k]));
        from = mark + strlen(parts[i].mark);
        if (!hash_source(begin, (size_t)(to - begin), parts[i].source)) {
            free(page);
            return NULL;
        }
    }
    if (!page) return NULL;
    to = put(to, from, strlen(from));
    *to = 0;
    *len = (size_t)(to - page);
    return page;
}

static void pack(dashboard *d)
{
    z_stream z = {0};
    if (deflateInit2(&z, Z_BEST_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return;
    const size_t room = deflateBound(&z, (uLong)d->len);
    d->packed = malloc(room);
    z.next_in = (Bytef *)d->page;
    z.avail_in = (uInt)d->len;
    z.next_out = (Bytef *)d->packed;
    z.avail_out = (uInt)room;
    const bool fine = d->packed && deflate(&z, Z_FINISH) == Z_STREAM_END;
    d->packed_len = fine ? (size_t)z.total_out : 0;
    deflateEnd(&z);
    if (fine) return;
    free(d->packed);
    d->packed = NULL;
}

dashboard *dashboard_create(void)
{
    page_part parts[] = {{.mark = "@STYLE@", .texts = {dashboard_uplot_css, dashboard_style_css}},
                         {.mark = "@UPLOT@", .texts = {dashboard_uplot_js}},
                         {.mark = "@APP@", .texts = {dashboard_app_js}}};
    dashboard *d = calloc(1, sizeof *d);
    if (d) d->page = put_together(parts, RAD_COUNT(parts), &d->len);
    if (!d || !d->page) {
        free(d);
        return NULL;
    }
    snprintf(
        d->policy, sizeof d->policy,
        "default-src 'none'; style-src %s; script-src %s %s; img-src data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        parts[0].source, parts[1].source, parts[2].source);
    pack(d);
    return d;
}

const char *dashboard_page(const dashboard *d, size_t *len)
{
    *len = d->len;
    return d->page;
}

const char *dashboard_policy(const dashboard *d)
{
    return d->policy;
}

/* ---- GET / ---- */

/* The header's list has the word, and does not give it a quality of 0. */
static bool accepts(const char *header, const char *word)
{
    const size_t len = strlen(word);
    for (const char *at = header; at && *at; at += strcspn(at, ","), at += *at == ',') {
        at += strspn(at, " \t");
        if (strncasecmp(at, word, len) != 0 || (at[len] && !strchr(",; \t", at[len]))) continue;
        const char *q = strstr(at, "q=0"), *end = at + strcspn(at, ",");
        return !q || q > end || strspn(q + 3, ".0") != (size_t)(end - q - 3);
    }
    return false;
}

static void send_page(server *s, struct evhttp_request *http)
{
    const struct evkeyvalq *in = evhttp_request_get_input_headers(http);
    struct evkeyvalq *out = evhttp_request_get_output_headers(http);
    const dashboard *d = s->dashboard;
    const bool packed = d->packed && accepts(evhttp_find_header(in, "Accept-Encoding"), "gzip");
    struct evbuffer *body = evbuffer_new();
    /* By reference: it lives as long as the server. */
    const bool fine = body &&
                      evbuffer_add_reference(body, packed ? d->packed : d->page,
                                             packed ? d->packed_len : d->len, NULL, NULL) == 0;
    evhttp_add_header(out, "Content-Type", "text/html; charset=utf-8");
    evhttp_add_header(out, "Content-Security-Policy", d->policy);
    evhttp_add_header(out, "X-Content-Type-Options", "nosniff");
    evhttp_add_header(out, "X-Frame-Options", "DENY");
    evhttp_add_header(out, "Referrer-Policy", "no-referrer");
    evhttp_add_header(out, "Cross-Origin-Opener-Policy", "same-origin");
    evhttp_add_header(out, "Cross-Origin-Resource-Policy", "same-origin");
    evhttp_add_header(out, "Cache-Control", "no-cache");
    evhttp_add_header(out, "Vary", "Accept, Accept-Encoding");
    if (packed) evhttp_add_header(out, "Content-Encoding", "gzip");
    s->access.status = fine ? 200 : 503;
    send_bytes(http, s->access.status, fine ? body : NULL);
    if (body) evbuffer_free(body);
    access_end(s, &s->access, "");
}

static void send_words(server *s, struct evhttp_request *http)
{
    struct evbuffer *body = evbuffer_new();
    if (body) {
        evbuffer_add_printf(body,
                            "radish " RAD_VERSION_STRING " serves %s\n\n"
                            "  OpenAI     /v1/chat/completions  /v1/completions  /v1/responses  "
                            "/v1/embeddings  /v1/models\n"
                            "  Anthropic  /v1/messages\n"
                            "  SGLang     /generate\n"
                            "  Ollama     /api/chat  /api/generate  (Ollama is running)\n"
                            "  figures    /metrics  /server_info  /health\n",
                            models_name(s, 0));
        if (!s->params.no_dashboard)
            evbuffer_add_printf(body, "  cache      /inspect/status  /inspect/tree  /inspect/node  "
                                      "/inspect/search; in a browser / is a page of it\n");
    }
    evhttp_add_header(evhttp_request_get_output_headers(http), "Content-Type",
                      "text/plain; charset=utf-8");
    evhttp_add_header(evhttp_request_get_output_headers(http), "Vary", "Accept");
    s->access.status = body ? 200 : 503;
    send_bytes(http, s->access.status, body);
    if (body) evbuffer_free(body);
    access_end(s, &s->access, "");
}

void handle_root(server *s, struct evhttp_request *http)
{
    const char *accept = evhttp_find_header(evhttp_request_get_input_headers(http), "Accept");
    const bool wants = !s->params.no_dashboard && accepts(accept, "text/html");
    if (wants && !s->dashboard) s->dashboard = dashboard_create();
    if (wants && s->dashboard)
        send_page(s, http);
    else
        send_words(s, http);
}
