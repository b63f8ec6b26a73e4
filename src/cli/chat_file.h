/* chat_file.h - a conversation in a file: {"messages": [{"role": ..., "content": ...}, ...]}, as
 * chat requests have it. */
#ifndef CLI_CHAT_FILE_H
#define CLI_CHAT_FILE_H

#include "cli/chat_history.h"

/* Writes the system message and all turns; a file of this name is replaced as a whole. */
rad_status chat_file_save(const chat_history *h, const char *path, rad_error *err);

/* What the file says becomes the conversation; on failure nothing changed. Texts only: user and
 * assistant in turn, behind at most one system message. */
rad_status chat_file_load(chat_history *h, const char *path, rad_error *err);

#endif
