/*
 * Bytes to lines. A line ends at LF only, however the reads cut it. The only
 * state is the caller's `skipping`.
 */
#include "proto/request.h"

#include "daemon/base/assert.h"

/* The number of bytes up to the first LF, which counts; 0: there is no LF. */
static size_t
line_span(const char *data, size_t len)
{
    const char *feed = len == 0 ? NULL : memchr(data, '\n', len);

    return feed == NULL ? 0 : (size_t)(feed - data) + 1;
}

enum line_status
line_next(char *data, size_t len, size_t line_max, bool *skipping, size_t *used,
    char **line, size_t *line_len)
{
    size_t skip = 0, span, rest;

    require(line_max > 0);
    if (*skipping) {
        skip = line_span(data, len);
        *used = skip == 0 ? len : skip;
        if (skip == 0)
            return LINE_MORE;
        *skipping = false;
    }
    rest = len - skip;
    *used = skip;
    span = line_span(data + skip, rest < line_max ? rest : line_max);
    if (span == 0 && rest < line_max)
        return LINE_MORE;
    *line = data + skip;
    if (span == 0) {
        *used += line_max;
        *line_len = line_max;
        *skipping = true;
        return LINE_TOO_LONG;
    }
    *used += span;
    require(*used <= len);
    span--;
    if (span > 0 && (*line)[span - 1] == '\r')
        span--;
    *line_len = span;
    return LINE_FOUND;
}

/* Cuts the first word off `rest`, with the SP after it. */
static struct text
word_cut(struct text *rest)
{
    const char *blank =
        rest->len == 0 ? NULL : memchr(rest->at, ' ', rest->len);
    size_t len = blank == NULL ? rest->len : (size_t)(blank - rest->at);
    size_t gone = blank == NULL ? len : len + 1;
    struct text word = text_make(rest->at, len);

    *rest = text_make(rest->at + gone, rest->len - gone);
    return word;
}

static bool
text_begins(struct text text, struct text prefix)
{
    return text.len >= prefix.len &&
           text_equal_nocase(text_make(text.at, prefix.len), prefix);
}

static bool
method_of_http(struct text word)
{
    /* None of them is a command. PRI opens HTTP/2. */
    static const char *const methods[] = {"GET", "HEAD", "POST", "PUT",
        "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "PRI"};

    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        if (text_equal_nocase(word, text_from(methods[i])))
            return true;
    }
    return false;
}

/* The header of version 1, or the third line of version 2, after which comes
 * QUIT. */
static bool
header_of_proxy(struct text line)
{
    return text_begins(line, TEXT("PROXY TCP")) ||
           text_begins(line, TEXT("PROXY UNKNOWN")) ||
           text_equal(line, text_make("", 1));
}

bool
line_foreign(const char *line, size_t len)
{
    struct text rest = text_make(line, len);
    struct text word;

    if (len > 0 && line[0] == 0x16) /* the type of a TLS handshake record */
        return true;
    if (header_of_proxy(rest))
        return true;
    if (text_begins(rest, TEXT("Host:")))
        return true;
    if (!method_of_http(word_cut(&rest)))
        return false;
    if (rest.len > 0 && rest.at[0] == '/')
        return true;
    while (rest.len > 0) {
        word = word_cut(&rest);
        if (text_begins(word, TEXT("HTTP/")))
            return true;
    }
    return false;
}
