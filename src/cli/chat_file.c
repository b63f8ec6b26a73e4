/* chat_file.c - messages to JSON and back. */
#include "cli/chat_file.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILE = 64 << 20 };

/* What is not UTF-8 was said nonetheless; JSON cannot tell it. */
static json_t *text_of(const char *text, size_t len)
{
    json_t *value = json_stringn(text, len);
    return value ? value : json_string("(not UTF-8)");
}

static bool append(json_t *messages, const char *role, const char *text, size_t len)
{
    json_t *m = json_pack("{s:s, s:o}", "role", role, "content", text_of(text, len));
    return m && json_array_append_new(messages, m) == 0;
}

rad_status chat_file_save(const chat_history *h, const char *path, rad_error *err)
{
    json_t *root = json_pack("{s:[]}", "messages");
    json_t *messages = json_object_get(root, "messages");
    char temporary[4096];
    bool fine = messages != NULL;
    if (fine && h->system) fine = append(messages, "system", h->system, strlen(h->system));
    for (uint32_t i = 0; fine && i < h->num_messages; i++) {
        const chat_message *m = &h->messages[i];
        fine = append(messages, m->role, m->content, m->content_len);
    }
    rad_status status = RAD_OK;
    if (!fine) {
        status = rad_fail(err, RAD_E_NOMEM, "no memory for the conversation");
    } else if (snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid()) >=
               (int)sizeof temporary) {
        status = rad_fail(err, RAD_E_INVAL, "the name is too long");
    } else {
        mode_t before = umask(077);
        fine = json_dump_file(root, temporary, JSON_INDENT(2)) == 0 && rename(temporary, path) == 0;
        umask(before);
        if (!fine) {
            status = rad_fail(err, RAD_E_IO, "cannot write '%s': %s", path, strerror(errno));
            unlink(temporary);
        }
    }
    json_decref(root);
    return status;
}

/* The text of message i; NULL after saying what is wrong. */
static const char *checked(const json_t *m, size_t i, size_t first, const char *path,
                           rad_error *err)
{
    const char *role = json_string_value(json_object_get(m, "role"));
    const json_t *content = json_object_get(m, "content");
    const char *want = i < first ? "system" : (i - first) % 2 ? "assistant" : "user";
    if (!role || strcmp(role, want) != 0) {
        rad_fail(err, RAD_E_INVAL, "'%s': message %zu is of '%.20s', where one of '%s' is expected",
                 path, i + 1, role ? role : "nobody", want);
        return NULL;
    }
    if (!json_is_string(content)) {
        rad_fail(err, RAD_E_INVAL, "'%s': the content of message %zu is no text", path, i + 1);
        return NULL;
    }
    return json_string_value(content);
}

static bool has_system(const json_t *messages)
{
    const char *role = json_string_value(json_object_get(json_array_get(messages, 0), "role"));
    return role && strcmp(role, "system") == 0;
}

rad_status chat_file_load(chat_history *h, const char *path, rad_error *err)
{
    json_error_t why;
    struct stat st;
    if (stat(path, &st) != 0)
        return rad_fail(err, RAD_E_IO, "cannot read '%s': %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size > MAX_FILE)
        return rad_fail(err, RAD_E_INVAL, "'%s' is no file of at most 64 MiB", path);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (!root) return rad_fail(err, RAD_E_INVAL, "'%s', line %d: %s", path, why.line, why.text);
    const json_t *messages = json_object_get(root, "messages");
    const size_t count = json_array_size(messages), first = has_system(messages);
    rad_status status = RAD_OK;
    chat_history loaded = {.format = h->format, .tok = h->tok};
    if (!json_is_array(messages))
        status = rad_fail(err, RAD_E_INVAL, "'%s' has no \"messages\"", path);
    else if ((count - first) % 2)
        status = rad_fail(err, RAD_E_INVAL, "'%s' ends with a question without an answer", path);
    for (size_t i = 0; i < count && status == RAD_OK; i++) {
        const json_t *m = json_array_get(messages, i);
        const char *text = checked(m, i, first, path, err);
        const size_t len = json_string_length(json_object_get(m, "content"));
        if (!text)
            status = RAD_E_INVAL;
        else if (i < first)
            status = chat_history_set_system(&loaded, text, err);
        else
            status =
                chat_history_add(&loaded, (i - first) % 2 ? "assistant" : "user", text, len, err);
    }
    json_decref(root);
    if (status != RAD_OK) {
        chat_history_fini(&loaded);
        return status;
    }
    chat_history_fini(h);
    *h = loaded;
    return RAD_OK;
}
