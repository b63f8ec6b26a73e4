/* ptx_text.h - committed PTX as text of the program: PTX_TEXT(copy_rows_ptx, "device/ptx/...").
 *
 * The path is below src/. CMake gives RADISH_SRC, and has the file that includes this made again
 * when a PTX changed (OBJECT_DEPENDS). */
#ifndef DEVICE_PTX_TEXT_H
#define DEVICE_PTX_TEXT_H

#define PTX_TEXT(symbol, path)                                                                     \
    __asm__(".pushsection .rodata,\"a\",%progbits\n"                                               \
            ".globl " #symbol "\n"                                                                 \
            ".hidden " #symbol "\n"                                                                \
            ".type " #symbol ",%object\n" #symbol ":\n"                                            \
            ".incbin \"" RADISH_SRC "/" path "\"\n"                                                \
            ".byte 0\n"                                                                            \
            ".size " #symbol ", . - " #symbol "\n"                                                 \
            ".popsection\n");                                                                      \
    extern const char symbol[] __attribute__((visibility("hidden"))) /* ends in NUL */

#endif
