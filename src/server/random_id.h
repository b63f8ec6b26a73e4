/* random_id.h - names that tell nothing about each other. */
#ifndef SERVER_RANDOM_ID_H
#define SERVER_RANDOM_ID_H

enum { RANDOM_ID_BYTES = 33 }; /* 32 hexadecimal digits */
void random_id(char id[RANDOM_ID_BYTES]);

#endif
