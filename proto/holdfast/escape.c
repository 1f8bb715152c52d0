/*
 * Names, notes and messages are untrusted. They must not control a terminal,
 * break a line or a column, or end a JSON string.
 */
#include "proto/holdfast/escape.h"

#include "daemon/base/assert.h"
#include "daemon/base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool
code_is_harmless(uint32_t code)
{
    static const struct {
        uint32_t first;
        uint32_t last;
    } harmful[] = {
        {0x00, 0x1f},       /* C0 */
        {0x5c, 0x5c},       /* backslash */
        {0x7f, 0x9f},       /* DEL, C1 */
        {0x200b, 0x200f},   /* no width, direction */
        {0x2028, 0x202e},   /* line ends, direction */
        {0x2060, 0x206f},   /* no width, direction */
        {0xfeff, 0xfeff},   /* byte order mark */
        {0xe0000, 0xe007f}, /* tags */
    };

    for (size_t i = 0; i < sizeof(harmful) / sizeof(harmful[0]); i++)
        if (code >= harmful[i].first && code <= harmful[i].last)
            return false;
    return true;
}

/* Four bytes of output for each byte of input are always enough. */
static size_t
escape_into(
    const char *bytes, size_t len, char *out, size_t room, size_t *width)
{
    size_t at = 0;

    *width = 0;
    for (size_t i = 0; i < len;) {
        uint32_t code = 0;
        size_t count = text_utf8(text_make(bytes + i, len - i), &code);
        bool plain = count > 0 && code_is_harmless(code);

        if (count == 0)
            count = 1;
        size_t need = plain ? count : 4 * count;
        if (at + need > room)
            break;
        for (size_t k = 0; k < count; k++) {
            if (plain) {
                out[at++] = bytes[i + k];
                continue;
            }
            (void)snprintf(
                out + at, 5, "\\x%02x", (unsigned)(unsigned char)bytes[i + k]);
            at += 4;
        }
        *width += plain ? 1 : need;
        i += count;
    }
    out[at] = '\0';
    return at;
}

char *
escape_make(const char *bytes, size_t len, size_t *width)
{
    size_t ignored;
    char *out = malloc(4 * len + 1);

    if (out != NULL) {
        (void)escape_into(
            bytes, len, out, 4 * len, width != NULL ? width : &ignored);
    }
    return out;
}

const char *
escape_text(const char *string, char *out, size_t out_bytes)
{
    size_t width;

    require(out_bytes > 0);
    (void)escape_into(string, strlen(string), out, out_bytes - 1, &width);
    return out;
}

void
escape_json(FILE *out, const char *bytes, size_t len)
{
    (void)putc('"', out);
    for (size_t i = 0; i < len;) {
        uint32_t code = 0;
        size_t count = text_utf8(text_make(bytes + i, len - i), &code);

        if (count == 0) {
            (void)fputs("\\ufffd", out);
            count = 1;
        } else if (code == '"' || code == '\\') {
            (void)fprintf(out, "\\%c", (char)code);
        } else if (code < 0x10000 && code != ' ' && !code_is_harmless(code)) {
            (void)fprintf(out, "\\u%04x", (unsigned)code);
        } else {
            (void)fwrite(bytes + i, 1, count, out);
        }
        i += count;
    }
    (void)putc('"', out);
}
