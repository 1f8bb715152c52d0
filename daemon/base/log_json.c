/*
 * Log lines as JSON (RFC 8259). The pairs are found again in the line, so that
 * all who write lines have one call for both forms.
 *
 * A value that is not in quotes goes on until the next ` key=`, for a path or a
 * message may have blanks; nothing of a line is left out.
 */
#include "daemon/base/log_json.h"

#define NO_CHARACTER 0xfffd

static bool
is_key_byte(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') ||
           byte == '_';
}

static bool
begins_pair(struct text text)
{
    size_t i = 0;

    while (i < text.len && is_key_byte(text.at[i]))
        i++;
    return i > 0 && i < text.len && text.at[i] == '=';
}

/* What is left of `text` after its first `count` bytes. */
static struct text
after(struct text text, size_t count)
{
    return text_make(text.at + count, text.len - count);
}

/* Bytes of the quoted text that it begins with; 0: it does not. */
static size_t
quoted_len(struct text text)
{
    size_t i = 1;

    if (text.len == 0 || text.at[0] != '"')
        return 0;
    while (i < text.len && text.at[i] != '"')
        i += text.at[i] == '\\' ? 2 : 1;
    return i < text.len ? i + 1 : text.len;
}

/* Takes the first pair out of `rest`. */
static void
pair_take(struct text *rest, struct text *key, struct text *value)
{
    size_t len = 0;

    while (len < rest->len && rest->at[len] != '=')
        len++;
    *key = text_make(rest->at, len);
    *rest = after(*rest, len < rest->len ? len + 1 : len);
    len = quoted_len(*rest);
    while (len < rest->len &&
           (rest->at[len] != ' ' || !begins_pair(after(*rest, len + 1))))
        len++;
    *value = text_make(rest->at, len);
    *rest = after(*rest, len < rest->len ? len + 1 : len);
}

/* Whether the format has `key=%d`, or another integer. */
static bool
format_has_number(const char *format, struct text key)
{
    for (const char *at = format; *at != '\0'; at++) {
        if ((at != format && at[-1] != ' ') ||
            strncmp(at, key.at, key.len) != 0 || at[key.len] != '=' ||
            at[key.len + 1] != '%')
            continue;
        at += key.len + 2;
        at += strspn(at, "0123456789hljzt");
        return *at == 'd' || *at == 'i' || *at == 'u';
    }
    return false;
}

static bool
is_number(struct text value)
{
    uint64_t number;

    if (value.len > 0 && value.at[0] == '-')
        value = after(value, 1);
    return text_to_u64(value, UINT64_MAX, &number);
}

/* The byte that `text` begins with where it stands in quotes, and how many
 * bytes are for it. */
static size_t
unquote(struct text text, char *byte)
{
    uint8_t value;

    *byte = text.at[0];
    if (text.at[0] != '\\' || text.len < 2)
        return 1;
    if (text.at[1] == '"' || text.at[1] == '\\') {
        *byte = text.at[1];
        return 2;
    }
    if (text.at[1] != 'x' || text.len < 4 ||
        !text_from_hex(text_make(text.at + 2, 2), &value, 1))
        return 1;
    *byte = (char)value;
    return 4;
}

/* Takes the first character out of `text`. */
static uint32_t
character_take(struct text *text, bool quoted)
{
    char bytes[4];  /* as many as one may have */
    size_t ends[4]; /* of each in `text` */
    size_t count = 0;
    size_t at = 0;
    uint32_t code;

    while (count < 4 && at < text->len) {
        bytes[count] = text->at[at];
        at += quoted ? unquote(after(*text, at), &bytes[count]) : 1;
        ends[count++] = at;
    }
    size_t used = text_utf8(text_make(bytes, count), &code);
    *text = after(*text, ends[used > 0 ? used - 1 : 0]);
    return used > 0 ? code : NO_CHARACTER;
}

static size_t
put_unit(char *out, uint32_t unit)
{
    const uint8_t bytes[] = {(uint8_t)(unit >> 8), (uint8_t)unit};

    memcpy(out, "\\u", 2);
    text_to_hex(out + 2, bytes, sizeof(bytes));
    return 6;
}

static size_t
put_character(char *out, uint32_t code)
{
    size_t len = 0;

    if (code >= 0x10000) {
        len = put_unit(out, 0xd800 + ((code - 0x10000) >> 10));
        return len + put_unit(out + len, 0xdc00 + (code & 0x3ff));
    }
    if (code < 0x20 || code > 0x7e)
        return put_unit(out, code);
    if (code == '"' || code == '\\')
        out[len++] = '\\';
    out[len++] = (char)code;
    return len;
}

static size_t
put_string(char *out, struct text text, bool quoted)
{
    size_t len = 0;

    out[len++] = '"';
    while (text.len > 0)
        len += put_character(out + len, character_take(&text, quoted));
    out[len++] = '"';
    return len;
}

static size_t
put_value(char *out, struct text value, bool number)
{
    bool quoted = value.len > 0 && value.at[0] == '"';

    if (number && is_number(value)) {
        memcpy(out, value.at, value.len);
        return value.len;
    }
    if (quoted)
        value = after(value, 1);
    if (quoted && value.len > 0 && value.at[value.len - 1] == '"')
        value.len--; /* else the line was cut */
    return put_string(out, value, quoted);
}

size_t
log_json(char *out, struct text line, const char *format)
{
    struct text key;
    struct text value;
    size_t len = 0;

    out[len++] = '{';
    while (line.len > 0) {
        pair_take(&line, &key, &value);
        if (len > 1)
            out[len++] = ',';
        len += put_string(out + len, key, false);
        out[len++] = ':';
        len += put_value(out + len, value, format_has_number(format, key));
    }
    out[len++] = '}';
    out[len] = '\0';
    return len;
}
