/* tool_names.c - a line each: "NAME\n" of a custom tool, "NAMESPACE\tNAME\n" of a function. */
#include "server/tool_names.h"

#include <stdlib.h>
#include <string.h>

bool tool_name_is_fine(const json_t *name)
{
    const char *text = json_string_value(name);
    return text && *text && strlen(text) == json_string_length(name) && !strpbrk(text, "\n\t");
}

json_t *tool_name_join(const json_t *space, const json_t *name)
{
    return json_sprintf("%s" TOOL_NAME_JOIN "%s", json_string_value(space),
                        json_string_value(name));
}

bool tool_names_add(api_kept *kept, const json_t *space, const json_t *name)
{
    size_t len = kept->tool_names_len, more = json_string_length(name) + 2;
    if (space) more += json_string_length(space) + 1;
    if (len + more > kept->tool_names_room) { /* doubled: many tools are added in linear time */
        size_t room = 2 * (len + more);
        char *text = realloc(kept->tool_names, room);
        if (!text) return false;
        kept->tool_names = text;
        kept->tool_names_room = room;
    }
    char *end = kept->tool_names + len;
    if (space) end = stpcpy(stpcpy(end, json_string_value(space)), "\t");
    end = stpcpy(stpcpy(end, json_string_value(name)), "\n");
    kept->tool_names_len = (size_t)(end - kept->tool_names);
    return true;
}

bool tool_names_is_custom(const api_kept *kept, const char *name)
{
    size_t len = strlen(name);
    for (const char *line = kept->tool_names; line && *line; line = strchr(line, '\n') + 1)
        if (strncmp(line, name, len) == 0 && line[len] == '\n') return true;
    return false;
}

const char *tool_names_space(const api_kept *kept, const char *name, size_t *len)
{
    static const char join[] = TOOL_NAME_JOIN;
    for (const char *line = kept->tool_names; line && *line; line = strchr(line, '\n') + 1) {
        size_t all = strcspn(line, "\n"), space = strcspn(line, "\t\n");
        size_t own = all - space - 1; /* behind the tab */
        if (space == all || strlen(name) != space + strlen(join) + own) continue;
        if (memcmp(name, line, space) == 0 && memcmp(name + space, join, strlen(join)) == 0 &&
            memcmp(name + space + strlen(join), line + space + 1, own) == 0) {
            *len = space;
            return line;
        }
    }
    return NULL;
}
