/* config_file.c - cuts a file into names and values, in place. */
#include "cli/config_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

rad_status config_file_open(config_file *f, const char *path, rad_error *err)
{
    *f = (config_file){.path = path};
    FILE *file = fopen(path, "rb");
    if (!file) return rad_fail(err, RAD_E_IO, "cannot open '%s': %s", path, strerror(errno));
    char *text = malloc(CONFIG_FILE_MOST + 1);
    errno = 0;
    const size_t len = text ? fread(text, 1, CONFIG_FILE_MOST + 1, file) : 0;
    const int why = ferror(file) ? errno : 0;
    fclose(file);
    if (!text) return rad_fail(err, RAD_E_NOMEM, "no memory for '%s'", path);
    rad_status status = RAD_OK;
    if (why)
        status = rad_fail(err, RAD_E_IO, "cannot read '%s': %s", path, strerror(why));
    else if (len > CONFIG_FILE_MOST)
        status = rad_fail(err, RAD_E_LIMIT, "'%s' is longer than %d bytes", path, CONFIG_FILE_MOST);
    else if (memchr(text, 0, len))
        status = rad_fail(err, RAD_E_FORMAT, "'%s' is no text: it has a byte 0", path);
    if (status != RAD_OK) {
        free(text);
        return status;
    }
    text[len] = 0;
    f->text = f->next = text;
    return RAD_OK;
}

void config_file_close(config_file *f)
{
    free(f->text);
    *f = (config_file){0};
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* [from, to) without the blanks around it, as a string. */
static char *trimmed(char *from, char *to)
{
    while (from < to && is_blank(*from))
        from++;
    while (to > from && is_blank(to[-1]))
        to--;
    *to = 0;
    return from;
}

rad_status config_file_next(config_file *f, const char **name, const char **value, rad_error *err)
{
    *name = *value = NULL;
    while (*f->next) {
        char *end = strchr(f->next, '\n'), *rest = end ? end + 1 : NULL;
        if (!end) end = f->next + strlen(f->next);
        char *line = trimmed(f->next, end);
        f->next = rest ? rest : end;
        f->line++;
        if (!*line || *line == '#') continue;
        char *equals = strchr(line, '=');
        *name = line;
        if (equals) {
            *value = trimmed(equals + 1, line + strlen(line));
            trimmed(line, equals);
        }
        if (line[strcspn(line, " \t\"'")] || *line == '-' || !*line || (*value && !**value))
            return rad_fail(err, RAD_E_FORMAT,
                            "%s:%u: a line is the name of an option without dashes, or NAME = "
                            "VALUE",
                            f->path, f->line);
        return RAD_OK;
    }
    return RAD_OK;
}

bool config_file_holds(const config_file *f, const char *text)
{
    const uintptr_t at = (uintptr_t)text, from = (uintptr_t)f->text;
    return from && at >= from && at <= (uintptr_t)f->next;
}
