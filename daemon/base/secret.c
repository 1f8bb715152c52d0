/*
 * Files of secrets. See secret.h.
 */
#include "daemon/base/secret.h"

#include <stdio.h>

/* A blank, a no-break space, a zero-width space, a byte order mark. */
static const char *const blanks[] = {
    " ", "\xc2\xa0", "\xe2\x80\x8b", "\xef\xbb\xbf"};

static bool
is_line_end(char byte)
{
    return byte == '\n' || byte == '\r';
}

/* The mistake in a secret; NULL: there is none. */
static const char *
objection(struct text text)
{
    for (size_t i = 0; i < text.len; i++)
        if (is_line_end(text.at[i]))
            return "has more than one line: leave only the secret in it";
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.at[i] < ' ' || text.at[i] == 0x7f)
            return "has a control character (a NUL, a tab ...): remove it";
    for (size_t i = 0; i < sizeof(blanks) / sizeof(blanks[0]); i++) {
        struct text blank = text_from(blanks[i]);
        if (text_starts_with(text, blank))
            return "begins with a blank: remove it";
        if (text.len > blank.len &&
            text_equal(
                text_make(text.at + text.len - blank.len, blank.len), blank))
            return "ends in a blank: remove it";
    }
    return NULL;
}

bool
secret_read(struct text file, size_t min, size_t max, struct text *secret,
    char *why, size_t why_bytes)
{
    struct text text = file;
    const char *what = NULL;

    if (text_starts_with(text, TEXT("\xff\xfe")) ||
        text_starts_with(text, TEXT("\xfe\xff")))
        what = "is UTF-16: save it as UTF-8";
    if (text_starts_with(text, TEXT("\xef\xbb\xbf")))
        text = text_make(text.at + 3, text.len - 3);
    while (text.len > 0 && is_line_end(text.at[text.len - 1]))
        text.len--;
    if (what == NULL)
        what = text.len == 0 ? "is empty" : objection(text);
    *secret = text;
    if (what != NULL)
        snprintf(why, why_bytes, "%s", what);
    else if (text.len > max || file.len >= SECRET_FILE_BYTES)
        snprintf(why, why_bytes, "is longer than %zu bytes", max);
    else if (text.len < min)
        snprintf(why, why_bytes, "is shorter than %zu bytes", min);
    else
        return true;
    return false;
}
