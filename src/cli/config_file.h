/* config_file.h - options out of a file, one a line, under the names that they have as flags:
 *
 *     # what a service serves
 *     model-path = /var/lib/radish/model.gguf
 *     port = 30000
 *     allow-host = llm.example.com
 *     enable-hierarchical-cache
 *
 * A line is a name, or a name, "=" and a value: the rest of the line without the blanks around it.
 * What may be given more than once may have several lines. A flag alone, or with "true", is
 * set; with "false" it is not. A line that begins with # is a comment. What stands on the command
 * line goes before; of lists both count. */
#ifndef CLI_CONFIG_FILE_H
#define CLI_CONFIG_FILE_H

#include "base/base.h"

#include <stdbool.h>

#define CONFIG_FILE_MOST (1 << 20) /* bytes */

typedef struct config_file {
    const char *path;
    char *text;    /* names and values point into it: they live until config_file_close */
    char *next;    /* what was not read yet */
    uint32_t line; /* of what config_file_next has given last, from 1 */
    uint32_t reserved;
} config_file;

/* RAD_E_IO when it cannot be read, RAD_E_LIMIT when it is too long, RAD_E_FORMAT for a byte 0. */
rad_status config_file_open(config_file *f, const char *path, rad_error *err);
void config_file_close(config_file *f); /* also one of zeros, which was not opened */

/* The next name (NULL: the file has ended) and its value (NULL: a name alone). RAD_E_FORMAT for a
 * line that is none of these, in words that name file and line. */
rad_status config_file_next(config_file *f, const char **name, const char **value, rad_error *err);

/* `text` is a name or value of it. */
bool config_file_holds(const config_file *f, const char *text);

#endif
