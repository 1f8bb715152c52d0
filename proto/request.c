/*
 * One line to one request, strictly by the grammar of PROTOCOL.md section 1.
 *
 * The line is read once, from left to right. The error is the first mistake.
 * Words are decoded in place, which only shortens them. The parser takes no
 * memory and keeps no state between lines.
 *
 * The core calls it for each line, and checks whether the request fits the
 * session and its locks.
 */
#include "proto/request.h"

#include "daemon/base/assert.h"
#include "proto/reply.h"

enum argument_type {
    ARGUMENT_NONE,
    ARGUMENT_NAME,
    ARGUMENT_TAG,
    ARGUMENT_NUMBER,
    ARGUMENT_SESSION,
    ARGUMENT_NAMES,
    ARGUMENT_USER, /* and a secret */
};

struct command_row {
    struct text name;
    enum argument_type argument;
    uint64_t keys; /* low half: allowed keys; high half: required keys */
};

enum key_type {
    KEY_WORD,
    KEY_DURATION,
    KEY_NUMBER,
    KEY_FLAG,
};

struct key_row {
    struct text name;
    enum key_type type;
    uint64_t min;
    uint64_t max;
    /* The errors of a value, and of the key itself. */
    const char *refused;
    const char *doubled;
    const char *misplaced;
    const char *missing;
};

/* TEXT() is a compound literal, which cannot initialize a static table. */
#define TEXT_OF(literal)                            \
    {                                               \
        .at = (literal), .len = sizeof(literal) - 1 \
    }

#define REQUIRED_SHIFT 32
_Static_assert(REQUEST_KEY_COUNT <= REQUIRED_SHIFT, "the keys fill a half");

#define K(key) (UINT64_C(1) << REQUEST_KEY_##key)
#define R(key) (K(key) | K(key) << REQUIRED_SHIFT)

static const struct command_row command_rows[COMMAND_COUNT] = {
#define COMMAND(                                                               \
    id, right, draining, refusal, handler, timer, argument, keys, usage, help) \
    {TEXT_OF(#id), ARGUMENT_##argument, (keys)},
#include "proto/commands.def"
};

#define RANGE_WORD(min, max) #min " to " #max " bytes"
#define RANGE_DURATION(min, max) \
    "a duration (1500, 1500ms, 30s, 5m, 1h) from " #min " to " #max " ms"
#define RANGE_NUMBER(min, max) "a decimal number from " #min " to " #max
#define RANGE_FLAG(min, max)   #min " or " #max

static const struct key_row key_rows[REQUEST_KEY_COUNT] = {
#define KEY(id, word, type, min, max)                                       \
    {TEXT_OF(word), KEY_##type, UINT64_C(min), UINT64_C(max),               \
        word "= must be " RANGE_##type(min, max), word "= was given twice", \
        word "= is not a key of this command",                              \
        word "= is missing; this command needs it"},
#include "proto/commands.def"
};

/* The rest of the line. */
struct scan {
    char *at;
    char *end;
    struct request_error *error; /* ref */
};

/* A word of the line, not decoded. */
struct token {
    char *at;
    size_t len;
    size_t equals; /* offset of the first '='; len if there is none */
    bool escaped;  /* it has a '%' */
};

enum token_status {
    TOKEN_FOUND,
    TOKEN_NONE, /* the line is over */
    TOKEN_BAD,
};

static bool
scan_fail(struct scan *scan, enum error_code code, const char *what)
{
    scan->error->code = code;
    scan->error->what = what;
    return false;
}

static bool
scan_refuse(struct scan *scan, const char *what)
{
    return scan_fail(scan, ERROR_BADREQ, what);
}

static enum token_status
scan_next(struct scan *scan, struct token *token)
{
    char *at = scan->at;
    char *equals = NULL;
    bool escaped = false;

    while (at < scan->end && *at == ' ')
        at++;
    token->at = at;
    for (; at < scan->end && *at != ' '; at++) {
        unsigned char byte = (unsigned char)*at;

        if (byte < 0x21 || byte > 0x7e) {
            scan_refuse(scan, "control bytes and bytes above 0x7E must be "
                              "percent-encoded");
            return TOKEN_BAD;
        }
        if (byte == '=' && equals == NULL)
            equals = at;
        if (byte == '%')
            escaped = true;
    }
    scan->at = at;
    token->len = (size_t)(at - token->at);
    token->equals = equals == NULL ? token->len : (size_t)(equals - token->at);
    token->escaped = escaped;
    return token->len == 0 ? TOKEN_NONE : TOKEN_FOUND;
}

/* Decodes a positional word or a value, of at least one byte. */
static bool
scan_decode(
    struct scan *scan, char *at, size_t len, bool escaped, struct text *out)
{
    require(len > 0);
    if (at[0] == ':')
        return scan_refuse(scan, "a leading ':' must be sent as %3A");
    if (escaped)
        len = percent_decode(at, len);
    if (len == SIZE_MAX)
        return scan_refuse(scan, "'%' must be followed by two hex digits");
    *out = text_make(at, len);
    return true;
}

static bool
byte_is_digit(unsigned char byte)
{
    return byte >= '0' && byte <= '9';
}

static bool
byte_in_tag(unsigned char byte)
{
    return byte_is_digit(byte) || (byte >= 'A' && byte <= 'Z') ||
           (byte >= 'a' && byte <= 'z') || byte == '.' || byte == '_' ||
           byte == '-';
}

static bool
tag_valid(const char *at, size_t len)
{
    if (len == 0 || len > PROTO_TAG_MAX || !byte_is_digit((unsigned char)at[0]))
        return false;
    for (size_t i = 1; i < len; i++) {
        if (!byte_in_tag((unsigned char)at[i]))
            return false;
    }
    return true;
}

bool
request_tag(const char *line, size_t len, char *tag)
{
    size_t start = 0, span = 0;

    while (start < len && line[start] == ' ')
        start++;
    while (start + span < len && line[start + span] != ' ')
        span++;
    tag[0] = '\0';
    if (!tag_valid(line + start, span))
        return false;
    memcpy(tag, line + start, span);
    tag[span] = '\0';
    return true;
}

/* Reads the tag if `token` begins with a digit, as no verb does. The next word
 * is then `token`. */
static bool
parse_tag(struct scan *scan, struct token *token, struct request_line *out)
{
    enum token_status status;

    if (!byte_is_digit((unsigned char)token->at[0]))
        return true;
    if (!tag_valid(token->at, token->len))
        return scan_refuse(scan,
            "a tag is 1 to 16 of 0-9 A-Z a-z . _ - and begins with a digit");
    memcpy(out->tag, token->at, token->len);
    out->tag[token->len] = '\0';
    status = scan_next(scan, token);
    if (status == TOKEN_NONE)
        return scan_refuse(scan, "the command is missing");
    return status == TOKEN_FOUND;
}

static bool
parse_command(
    struct scan *scan, const struct token *token, struct request_line *out)
{
    struct text word = text_make(token->at, token->len);

    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (text_equal_nocase(word, command_rows[i].name)) {
            out->command = (enum command)i;
            return true;
        }
    }
    return scan_fail(scan, ERROR_UNKNOWN, "no such command; HELP lists them");
}

static bool
parse_name(struct scan *scan, const struct token *token, size_t name_max,
    struct text *out)
{
    if (!scan_decode(scan, token->at, token->len, token->escaped, out))
        return false;
    if (out->len > name_max)
        return scan_fail(scan, ERROR_TOOLONG, "the name is over its limit");
    return true;
}

/* One of several names. */
static bool
parse_names(struct scan *scan, const struct token *token, size_t name_max,
    struct request_line *out)
{
    if (out->keys != 0)
        return scan_refuse(scan, "words come before key=value");
    if (out->name_count == LOCK_NAMES_MAX)
        return scan_refuse(scan, "too many names; 16 at most");
    if (!parse_name(scan, token, name_max, &out->names[out->name_count++]))
        return false;
    out->argument = out->names[0];
    return true;
}

/* The user or the secret. No error may show the secret. */
static bool
parse_user(
    struct scan *scan, const struct token *token, struct request_line *out)
{
    size_t max = out->name_count == 0 ? PROTO_USER_MAX : PROTO_SECRET_MAX;

    if (out->name_count == 2)
        return scan_refuse(scan, "too many words");
    if (!parse_name(scan, token, max, &out->names[out->name_count++]))
        return false;
    out->argument = out->names[0];
    return true;
}

/* A session's ID, or the short form of it. */
static bool
session_valid(struct text word)
{
    uint8_t id[16];

    return (word.len == 8 || word.len == 32) &&
           text_from_hex(word, id, word.len / 2);
}

/* `token` is a positional word of the command. */
static bool
parse_argument(struct scan *scan, const struct token *token, size_t name_max,
    struct request_line *out)
{
    if (command_rows[out->command].argument == ARGUMENT_NAMES)
        return parse_names(scan, token, name_max, out);
    if (command_rows[out->command].argument == ARGUMENT_USER)
        return parse_user(scan, token, out);
    if (out->argument.len > 0)
        return scan_refuse(scan, "too many words");
    if (out->keys != 0)
        return scan_refuse(scan, "words come before key=value");
    out->argument = text_make(token->at, token->len);
    switch (command_rows[out->command].argument) {
    case ARGUMENT_NONE:
        return scan_refuse(scan, "too many words");
    case ARGUMENT_NAME:
        return parse_name(scan, token, name_max, &out->argument);
    case ARGUMENT_NAMES:
    case ARGUMENT_USER:
        break;
    case ARGUMENT_TAG:
        if (tag_valid(token->at, token->len))
            return true;
        return scan_refuse(scan, "not a tag");
    case ARGUMENT_SESSION:
        if (session_valid(out->argument))
            return true;
        return scan_refuse(scan, "a session is 8 or 32 hex digits");
    case ARGUMENT_NUMBER:
        if (text_to_u64(out->argument, PROTO_NUMBER_MAX, &out->number))
            return true;
        return scan_refuse(scan, "not a decimal number below 2^53");
    }
    require(false);
    return false;
}

/* Digits and an optional unit, from min to max milliseconds. */
static bool
parse_duration(struct text value, uint64_t min, uint64_t max, uint64_t *out)
{
    static const struct {
        const char *name;
        uint64_t ms;
    } units[] = {{"", 1}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};

    size_t digits = 0;
    size_t i = 0;
    uint64_t count;

    while (digits < value.len && byte_is_digit((unsigned char)value.at[digits]))
        digits++;
    struct text unit = text_make(value.at + digits, value.len - digits);
    while (!text_equal(unit, text_from(units[i].name)))
        if (++i == sizeof(units) / sizeof(units[0]))
            return false;
    /* Bounded by the quotient, so that the product cannot overflow. */
    if (!text_to_u64(text_make(value.at, digits), max / units[i].ms, &count))
        return false;
    *out = count * units[i].ms;
    return *out >= min;
}

static bool
parse_value(const struct key_row *row, struct text value, struct text *word,
    uint64_t *number)
{
    switch (row->type) {
    case KEY_WORD:
        *word = value;
        return value.len >= row->min && value.len <= row->max;
    case KEY_DURATION:
        return parse_duration(value, row->min, row->max, number);
    case KEY_NUMBER:
    case KEY_FLAG:
        return text_to_u64(value, row->max, number) && *number >= row->min;
    }
    require(false);
    return false;
}

/* The key of that name, or REQUEST_KEY_COUNT. */
static enum request_key
key_find(struct text name)
{
    for (size_t i = 0; i < REQUEST_KEY_COUNT; i++) {
        if (text_equal_nocase(name, key_rows[i].name))
            return (enum request_key)i;
    }
    return REQUEST_KEY_COUNT;
}

/* `token` has a '='. */
static bool
parse_pair(
    struct scan *scan, const struct token *token, struct request_line *out)
{
    enum request_key key = key_find(text_make(token->at, token->equals));
    char *at = token->at + token->equals + 1;
    size_t len = token->len - token->equals - 1;
    const struct key_row *row;
    struct text value;

    if (key == REQUEST_KEY_COUNT)
        return scan_refuse(scan, "unknown key");
    row = &key_rows[key];
    if ((command_rows[out->command].keys >> key & 1) == 0)
        return scan_refuse(scan, row->misplaced);
    if (request_has(out, key))
        return scan_refuse(scan, row->doubled);
    if (len == 0)
        return scan_refuse(scan, "a key without a value");
    if (memchr(at, '=', len) != NULL)
        return scan_refuse(scan, "a '=' in a value must be sent as %3D");
    if (!scan_decode(scan, at, len, token->escaped, &value))
        return false;
    if (!parse_value(row, value, &out->word[key], &out->value[key]))
        return scan_refuse(scan, row->refused);
    out->keys |= UINT32_C(1) << key;
    return true;
}

/* Checks that the required words and keys are there. */
static bool
parse_complete(struct scan *scan, const struct request_line *out)
{
    static const char *const wanted[] = {
        [ARGUMENT_NONE] = "",
        [ARGUMENT_NAME] = "the name is missing",
        [ARGUMENT_NAMES] = "the name is missing",
        [ARGUMENT_TAG] = "the tag is missing",
        [ARGUMENT_NUMBER] = "the number is missing",
        [ARGUMENT_SESSION] = "the session is missing",
        [ARGUMENT_USER] = "the user is missing",
    };
    const struct command_row *row = &command_rows[out->command];
    uint32_t missing = (uint32_t)(row->keys >> REQUIRED_SHIFT) & ~out->keys;

    if (row->argument != ARGUMENT_NONE && out->argument.len == 0)
        return scan_refuse(scan, wanted[row->argument]);
    if (row->argument == ARGUMENT_USER && out->name_count < 2)
        return scan_refuse(scan, "the secret is missing");
    for (size_t key = 0; missing != 0; key++, missing >>= 1) {
        if ((missing & 1) != 0)
            return scan_refuse(scan, key_rows[key].missing);
    }
    return true;
}

/* Parses the words after the verb. */
static bool
parse_words(struct scan *scan, size_t name_max, struct request_line *out)
{
    struct token token;
    enum token_status status;

    while ((status = scan_next(scan, &token)) == TOKEN_FOUND) {
        bool good = token.equals < token.len
                        ? parse_pair(scan, &token, out)
                        : parse_argument(scan, &token, name_max, out);

        if (!good)
            return false;
    }
    return status == TOKEN_NONE && parse_complete(scan, out);
}

enum request_status
request_parse(char *line, size_t len, size_t name_max, struct request_line *out,
    struct request_error *error)
{
    struct scan scan = {.at = line, .end = line + len, .error = error};
    struct token token;
    enum token_status status;

    require(name_max >= 1 && name_max <= PROTO_NAME_MAX);
    /*
     * The arrays stay unset, since clearing them costs more than the parsing.
     */
    out->command = COMMAND_COUNT;
    out->tag[0] = '\0';
    out->argument = text_make(NULL, 0);
    out->number = 0;
    out->keys = 0;
    out->name_count = 0;
    status = scan_next(&scan, &token);
    if (status == TOKEN_NONE)
        return REQUEST_BLANK;
    if (status == TOKEN_FOUND && parse_tag(&scan, &token, out) &&
        parse_command(&scan, &token, out) && parse_words(&scan, name_max, out))
        return REQUEST_OK;
    return REQUEST_BAD;
}
